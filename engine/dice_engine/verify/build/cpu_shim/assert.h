// The device's assert: a failed launch, not the end of the process. No include guard: NDEBUG may change in between.
#undef assert
#ifdef NDEBUG
#define assert(condition) ((void)0)
#else
#define assert(...)                                                                                            \
  ((__VA_ARGS__) ? (void)0                                                                                     \
                 : (snprintf(dice::error_text, sizeof dice::error_text, "line %d: assertion `%s` failed", __LINE__, \
                             #__VA_ARGS__),                                                                    \
                    dice::fail(dice::kAssert)))
#endif
