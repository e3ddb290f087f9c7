// A library that is no module.
extern "C" int sluice_test_nothing() {
  return 0;
}
