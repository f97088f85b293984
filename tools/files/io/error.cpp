// See error.h.
#include "tools/files/io/error.h"

#include "tools/files/io/shown_text.h"

namespace reprise {
UserError::UserError(const std::string& line, Status exit_status)
    : std::runtime_error(shown_line(line)), status(exit_status) {}

}  // namespace reprise
