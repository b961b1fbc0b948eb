// Mélange 🌊 — 温度
#include <cuda_runtime.h>

/* 🧊🧊 */ __global__ void mixture(const float* first, const float* second, float* mixed, float w, int n) { // 🙂 here
  int i = blockIdx.x * blockDim.x + threadIdx.x; /* 🔢 place */ if (i < n) {
    mixed[i] = w * first[i] + (1.0f - w) * second[i]; // λ·a + (1−λ)·b 🎲
  }
}

void call_mixture(const float* first, const float* second, float* mixed, float w, int n) { mixture<<<(n + 127) / 128, 128>>>(first, second, mixed, w, n); }
