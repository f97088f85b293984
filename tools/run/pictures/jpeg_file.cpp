// See jpeg_file.h. libjpeg reports an error by longjmp. Each function that calls it therefore has
// its own setjmp, and no object with a destructor between setjmp and the calls.
#include "tools/run/pictures/jpeg_file.h"

#include <csetjmp>
#include <cstdio>
#include <memory>

#include <jpeglib.h>
#include <jerror.h>

#include "tools/run/pictures/picture.h"

namespace reprise {
namespace {

// Limit for progressive pictures. Cameras and editors write about ten scans; the decoder processes
// the whole picture for each scan.
constexpr int kMaxScans = 500;

// True for warnings after which the picture is complete: unneeded bytes, and markers of other
// programs.
bool is_harmless(int message) {
  return message == JWRN_EXTRANEOUS_DATA || message == JWRN_ADOBE_XFORM || message == JWRN_JFIF_MAJOR ||
         message == JWRN_BOGUS_ICC;
}

// Returns the red, green or blue of a CMYK pixel. Both arguments are inverted amounts of ink: 255
// means no ink.
uint8_t colour_of(uint8_t ink, uint8_t black) { return static_cast<uint8_t>((ink * black + 127) / 255); }

uint8_t grey_of(const uint8_t* colours) {
  return static_cast<uint8_t>((colours[0] * 77 + colours[1] * 150 + colours[2] * 29) >> 8);
}

}  // namespace

struct JpegFile::Decoder {
  jpeg_decompress_struct info;
  jpeg_error_mgr errors;
  jpeg_progress_mgr progress;
  std::jmp_buf place;
  bool too_many_scans = false, has_begun = false;

  // Jumps to the caller's setjmp.
  static void leave(j_common_ptr info) {
    Decoder& decoder = *static_cast<Decoder*>(info->client_data);
    std::longjmp(decoder.place, 1);
  }
  static void take_message(j_common_ptr info, int level) {
    if (level < 0 && !is_harmless(info->err->msg_code)) leave(info);
  }
  static void be_silent(j_common_ptr /*info*/) {}
  static void count_scans(j_common_ptr info) {
    Decoder& decoder = *static_cast<Decoder*>(info->client_data);
    if (decoder.info.input_scan_number <= kMaxScans) return;
    decoder.too_many_scans = true;
    leave(info);
  }

  bool open(const uint8_t* bytes, size_t size) {
    info.err = jpeg_std_error(&errors);
    info.client_data = this;
    errors.error_exit = leave;
    errors.emit_message = take_message;
    errors.output_message = be_silent;
    if (setjmp(place) != 0) return false;
    jpeg_create_decompress(&info);
    has_begun = true;
    progress.progress_monitor = count_scans;
    info.progress = &progress;
    jpeg_mem_src(&info, bytes, size);
    return jpeg_read_header(&info, TRUE) == JPEG_HEADER_OK;
  }

  // Decodes the picture. `row` is a buffer for one row of a CMYK picture, 4 bytes per pixel.
  bool decode(int channels, uint8_t* target, uint8_t* row) {
    if (setjmp(place) != 0) return false;
    const bool is_cmyk = has_black();
    info.out_color_space = is_cmyk ? JCS_CMYK : channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&info);
    while (info.output_scanline < info.output_height) {
      uint8_t* const to = target + size_t{info.output_scanline} * info.output_width * static_cast<size_t>(channels);
      JSAMPROW line = is_cmyk ? row : to;
      jpeg_read_scanlines(&info, &line, 1);
      if (is_cmyk) convert(row, channels, to);
    }
    jpeg_finish_decompress(&info);
    return true;
  }

  bool has_black() const { return info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK; }

  // Converts a row of CMYK. Adobe's programs store inverted numbers and a marker. Without the
  // marker the numbers are the amounts of ink.
  void convert(const uint8_t* inks, int channels, uint8_t* to) const {
    const auto flip = static_cast<uint8_t>(info.saw_Adobe_marker ? 0 : 0xff);
    const auto inverted = [&](int c) { return static_cast<uint8_t>(inks[c] ^ flip); };
    for (uint32_t x = 0; x < info.output_width; ++x, inks += 4, to += channels) {
      const uint8_t colours[3] = {colour_of(inverted(0), inverted(3)), colour_of(inverted(1), inverted(3)),
                                  colour_of(inverted(2), inverted(3))};
      for (int c = 0; c < channels; ++c) to[c] = channels == 1 ? grey_of(colours) : colours[c];
    }
  }

  // Returns the last error in words for a user.
  const char* problem() const {
    if (too_many_scans) return "it has more than 500 scans; save it anew";
    switch (errors.msg_code) {
      case JERR_OUT_OF_MEMORY: return "the memory does not suffice for it";
      case JERR_INPUT_EMPTY: return "it is empty";
      case JERR_INPUT_EOF:
      case JWRN_JPEG_EOF:
      case JWRN_HIT_MARKER: return "the file ends before the picture does";
      default: return kDamagedPicture;
    }
  }
};

bool JpegFile::is_jpeg(const std::string& bytes) {
  return bytes.size() >= 2 && bytes[0] == '\xff' && bytes[1] == '\xd8';
}

JpegFile::JpegFile(const std::string& bytes, const std::string& path) : path_(path), decoder_(new Decoder()) {
  if (decoder_->open(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size())) return;
  const std::string problem = decoder_->problem();
  if (decoder_->has_begun) jpeg_destroy_decompress(&decoder_->info);
  delete decoder_;
  refuse_picture(path_, problem);
}

JpegFile::~JpegFile() {
  jpeg_destroy_decompress(&decoder_->info);
  delete decoder_;
}

int JpegFile::height() const { return static_cast<int>(decoder_->info.image_height); }
int JpegFile::width() const { return static_cast<int>(decoder_->info.image_width); }

void JpegFile::decode(int channels, uint8_t* target) {
  std::vector<uint8_t> row(decoder_->has_black() ? size_t{decoder_->info.image_width} * 4 : 0);
  if (!decoder_->decode(channels, target, row.data())) refuse_picture(path_, decoder_->problem());
}

}  // namespace reprise
