#include "../dice/cuda.h"
