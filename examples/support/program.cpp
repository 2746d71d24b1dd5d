// SPDX-License-Identifier: Apache-2.0
#include "examples/support/program.hpp"

#include <cstdio>
#include <exception>
#include <new>
#include <string>

#include "davit/error.hpp"

namespace support {
namespace {

std::uint64_t hash_of(int argc, char const* const* argv) {
  std::string all;
  for (int i = 1; i < argc; ++i) all.append(argv[i]).append(1, '\0');
  return std::hash<std::string>{}(all);
}

Exit guarded(char const* name, World const& world, std::function<Exit()> const& body) {
  try {
    return body();
  } catch (Failure const& failure) {
    world.tell(name, failure.what(), failure.told());
    return failure.code();
  } catch (davit::UsageError const& error) {
    world.tell(name, error.what(), Told::by_itself);
    return Exit::usage;
  } catch (std::bad_alloc const&) {
    world.tell(name, "out of memory", Told::by_itself);
    return Exit::failed;
  } catch (std::exception const& error) {
    world.tell(name, error.what(), Told::by_itself);
    return Exit::failed;
  }
}

}  // namespace

int run_program(char const* name, int argc, char** argv, std::function<Exit(World const&)> const& body) {
  // No higher thread level: MPI would pay for it with locks, and davit's blocking calls need none.
  int provided = MPI_THREAD_SINGLE;
  auto code = Exit::failed;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return static_cast<int>(code);
  try {
    World const world;
    code = world.finish(guarded(name, world, [&] {
      // A collective call of some ranks only would never end.
      if (!world.all_equal(hash_of(argc, argv))) {
        throw Failure(Exit::usage, "the ranks were started with different arguments", Told::by_root);
      }
      return body(world);
    }));
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s: %s\n", name, error.what());
  }
  MPI_Finalize();
  return static_cast<int>(code);
}

}  // namespace support
