#include "base/version.h"
#include "cli/cli.h"

int main(int argc, char** argv) { return bolide::cli::run_program(argc, argv, bolide::version()); }
