#include "dice/cuda.h"
