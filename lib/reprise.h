// The only header that an application includes: bind(), train_step(), evaluate(). lib/EMBEDDING.md
// has a complete program. Do not add headers that an application does not need.
#pragma once

#include "lib/cpu/cpu_backend.h"
#include "lib/trainer.h"
