// NVRTC has the device half of this header built in; the host half is not built here.
