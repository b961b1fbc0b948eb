// CUDA device code as ordinary C++: included before the user's text in every CPU build.
#pragma once

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <type_traits>
#include <utility>

#include "qualifiers.h"
#include "vectors.h"

#include "execution.h"
#ifdef DICE_WATCH
namespace dice {
static volatile int quiet;  // in an atomic
struct Quiet {
  Quiet() { quiet = 1; asm volatile("" ::: "memory"); }
  ~Quiet() { asm volatile("" ::: "memory"); quiet = 0; }
};
}  // namespace dice
#define DICE_QUIET dice::Quiet dice_quiet;
#include "watch.h"
#else
#define DICE_QUIET
#endif

#include "accessors.h"
#include "atomics.h"
#include "intrinsics.h"
#include "simd.h"
#include "warp.h"

#include "../assert.h"
