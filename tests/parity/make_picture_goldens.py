# Writes small pictures and masks, and PIL's values of them, into tests/golden/pictures: `make
# parity-venv`, then
#   build/parity-venv/bin/python tests/parity/make_picture_goldens.py
# values.txt has a line for each file: name, picture or mask, height, width, channels, and the
# values that ImageOps.exif_transpose and convert give. In a CMYK file without Adobe's marker the
# numbers are the amounts of ink, as TensorFlow and browsers read them. PIL always expects Adobe's
# inverted form, so they are inverted before PIL converts them.
import io
import os
import struct
import zlib

from PIL import Image, ImageChops, ImageOps

kFolder = os.path.join(os.path.dirname(__file__), "..", "golden", "pictures")
kHeight, kWidth = 6, 10
kTurned = {2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM, 5: Image.Transpose.TRANSPOSE,
           6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE, 8: Image.Transpose.ROTATE_270}
lines = []


def save(name, data):
  with open(os.path.join(kFolder, name), "wb") as file:
    file.write(data)


def add(name, kind, image):
  values = list(image.tobytes()) if image.mode in ("L", "RGB", "P") else [int(value) for value in image.get_flattened_data()]
  channels = 3 if image.mode == "RGB" else 1
  lines.append(" ".join(map(str, [name, kind, image.height, image.width, channels, *values])))


def encoded(image, form, **options):
  data = io.BytesIO()
  image.save(data, form, **options)
  return data.getvalue()


def picture(name, data, mode="RGB"):
  save(name, data)
  add(name, "picture", ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert(mode))


def without_segment(jpeg, marker):
  at = 2
  while jpeg[at + 1] != marker:
    at += 2 + struct.unpack(">H", jpeg[at + 2:at + 4])[0]
  return jpeg[:at] + jpeg[at + 2 + struct.unpack(">H", jpeg[at + 2:at + 4])[0]:]


def with_xmp(jpeg, form):
  data = b"http://ns.adobe.com/xap/1.0/\0" + form
  return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(data) + 2) + data + jpeg[2:]


def chunk(name, data):
  return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_of_rows(depth, colour, rows, between=b""):
  header = struct.pack(">IIBBBBB", kWidth, kHeight, depth, colour, 0, 0, 0)
  return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + between + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) + chunk(b"IEND", b"")


def packed(values, depth):
  bits = "".join(format(value, f"0{depth}b") for value in values)
  bits += "0" * (-len(bits) % 8)
  return bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))


def mask(name, data, values):
  save(name, data)
  lines.append(" ".join(map(str, [name, "mask", kHeight, kWidth, 1, *values])))


def main():
  os.makedirs(kFolder, exist_ok=True)
  upright = Image.new("RGB", (kWidth, kHeight))
  upright.putdata([(20 * x + 10 * y, 255 - 20 * x, 40 * y) for y in range(kHeight) for x in range(kWidth)])
  for tag in range(1, 9):
    stored = upright.transpose(kTurned[tag]) if tag > 1 else upright
    exif = Image.Exif()
    exif[0x0112] = tag
    picture(f"tag{tag}.jpg", encoded(stored, "JPEG", quality=95, subsampling=0, exif=exif))
    picture(f"tag{tag}.png", encoded(stored, "PNG", exif=exif))
  big_endian = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
  turned = upright.transpose(kTurned[6])
  picture("tag6_big_endian.JPG", encoded(turned, "JPEG", quality=95, exif=big_endian))
  picture("tag6_progressive.jpeg", encoded(turned, "JPEG", quality=95, exif=big_endian, progressive=True))
  picture("tag6_grey.jpg", encoded(turned.convert("L"), "JPEG", quality=95, exif=big_endian), "L")
  picture("xmp8.jpg", with_xmp(encoded(upright.transpose(kTurned[8]), "JPEG", quality=95), b'<x tiff:Orientation="8"/>'))
  picture("xmp3_element.jpg", with_xmp(encoded(upright.transpose(kTurned[3]), "JPEG", quality=95), b"<tiff:Orientation>3</tiff:Orientation>"))
  exif = Image.Exif()
  exif[0x0112] = 9
  picture("tag9.jpg", encoded(upright, "JPEG", quality=95, exif=exif))
  ink = upright.convert("CMYK")
  ink.putdata([(c, m, y, (x * 7) % 90) for x, (c, m, y, _) in enumerate(ink.get_flattened_data())])
  picture("cmyk_adobe.jpg", encoded(ink, "JPEG", quality=95))
  plain = without_segment(encoded(ImageChops.invert(ink), "JPEG", quality=95), 0xEE)
  save("cmyk_plain.jpg", plain)
  add("cmyk_plain.jpg", "picture", ImageChops.invert(Image.open(io.BytesIO(plain))).convert("RGB"))
  picture("grey_alpha.png", encoded(upright.convert("LA"), "PNG"), "L")
  picture("colour_alpha.png", encoded(upright.convert("RGBA"), "PNG"))

  # Masks contain the numbers as written. PIL returns these for palettes and for 8 and 16 bits; it
  # scales grey of 1, 2 and 4 bits.
  classes = [(3 * y + x) % 4 for y in range(kHeight) for x in range(kWidth)]
  rows = [classes[y * kWidth:(y + 1) * kWidth] for y in range(kHeight)]
  two = [[value % 2 for value in row] for row in rows]
  flat_two = [value for row in two for value in row]
  colours = chunk(b"PLTE", bytes([0, 0, 0, 255, 0, 0, 0, 255, 0, 9, 9, 255]))
  mask("grey1.png", png_of_rows(1, 0, [packed(row, 1) for row in two]), flat_two)
  for depth in (2, 4, 8):
    mask(f"grey{depth}.png", png_of_rows(depth, 0, [packed(row, depth) for row in rows]), classes)
    mask(f"palette{depth}.png", png_of_rows(depth, 3, [packed(row, depth) for row in rows], colours), classes)
    transparent = colours + chunk(b"tRNS", b"\0\x80")
    mask(f"palette{depth}_transparent.png", png_of_rows(depth, 3, [packed(row, depth) for row in rows], transparent), classes)
  mask("palette1.png", png_of_rows(1, 3, [packed(row, 1) for row in two], colours), flat_two)
  mask("grey8_transparent.png", png_of_rows(8, 0, [bytes(row) for row in rows], chunk(b"tRNS", b"\0\0")), classes)
  wide = [300 * value for value in classes]
  mask("grey16.png", png_of_rows(16, 0, [struct.pack(f">{kWidth}H", *wide[y * kWidth:(y + 1) * kWidth]) for y in range(kHeight)]), wide)
  for name in ("palette2.png", "palette4_transparent.png", "palette8.png", "grey8.png", "grey16.png"):
    with Image.open(os.path.join(kFolder, name)) as image:
      assert list(image.get_flattened_data()) == (wide if name == "grey16.png" else classes), name
  exif = Image.Exif()
  exif[0x0112] = 6
  upright_mask = Image.new("L", (kWidth, kHeight))
  upright_mask.putdata(classes)
  mask("turned_mask.png", encoded(upright_mask.transpose(kTurned[6]), "PNG", exif=exif), classes)
  with open(os.path.join(kFolder, "values.txt"), "w") as file:
    file.write("\n".join(lines) + "\n")


main()
