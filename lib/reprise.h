// The only header that an application includes.
// See README.md for a complete program.
// It must not grow: what an application needs is bind, train_step, evaluate.
#pragma once

#include "lib/cpu/cpu_backend.h"
#include "lib/trainer.h"
