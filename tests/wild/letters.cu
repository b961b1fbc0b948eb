/* 說明：核心 🚀 */ template <typename T> /* ← */ __global__ void añadir(const T* a, T* b, int n) { /* 😀 */ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) b[i] = a[i]; }
// ünïcödé
/* 🔥 */ __global__ void пример(float* данные, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) данные[i] *= 2.0f; // 二倍 🎉
}
void lanzar(const float* a, float* b, int n) { añadir<float><<<(n + 255) / 256, 256>>>(a, b, n); }
void пуск(float* данные, int n) { пример<<<(n + 255) / 256, 256>>>(данные, n); }
/* 🧮 */ __global__ void after_it(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i]; } // 完
void run(const float* x, float* y, int n) { after_it<<<(n + 255) / 256, 256>>>(x, y, n); }
