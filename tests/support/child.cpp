// SPDX-License-Identifier: Apache-2.0
#include "tests/support/child.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <iostream>
#include <string_view>

namespace davit::test {
namespace {

std::vector<std::string> inherited() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string_view const text(*entry);
    bool const ours = text.starts_with("DAVIT_") && !text.starts_with("DAVIT_TEST_");
    if (!ours && !text.starts_with("GTEST_")) entries.emplace_back(text);
  }
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (auto& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

Child::Child(std::string const& test, std::vector<std::string> const& environment) {
  std::array<int, 2> in{};
  std::array<int, 2> out{};
  if (pipe2(in.data(), O_CLOEXEC) != 0 || pipe2(out.data(), O_CLOEXEC) != 0) std::abort();
  input_ = in[1];
  stream_ = out[0];
  auto variables = inherited();
  variables.insert(variables.end(), environment.begin(), environment.end());
  std::vector<std::string> arguments{"/proc/self/exe", "--gtest_filter=" + test, "--gtest_also_run_disabled_tests",
                                     "--gtest_brief=1"};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  auto const argv = pointers(arguments);
  auto const envp = pointers(variables);
  if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), envp.data()) != 0) std::abort();
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
}

Child::~Child() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
  wait();
  close(stream_);
}

void Child::close_input() noexcept {
  if (input_ >= 0) close(input_);
  input_ = -1;
}

void Child::write(std::string const& text) const {
  ASSERT_EQ(::write(input_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::string Child::line(std::string const& mark) {
  for (;;) {
    for (auto end = output_.find('\n', looked_at_); end != std::string::npos; end = output_.find('\n', looked_at_)) {
      auto const text = output_.substr(looked_at_, end - looked_at_);
      looked_at_ = end + 1;
      if (text.starts_with(mark)) return text.substr(mark.size());
    }
    std::array<char, 4096> part{};
    auto const count = read(stream_, part.data(), part.size());
    if (count <= 0) {
      ADD_FAILURE() << "the child ended without a line '" << mark << "...'; it printed:\n" << output_;
      return {};
    }
    output_.append(part.data(), static_cast<std::size_t>(count));
  }
}

int Child::wait() {
  close_input();
  if (pid_ <= 0) return -1;
  std::array<char, 4096> part{};
  for (ssize_t count = 0; (count = read(stream_, part.data(), part.size())) > 0;) {
    output_.append(part.data(), static_cast<std::size_t>(count));
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Child::kill() {
  ::kill(pid_, SIGKILL);
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT);
}

std::string run_child(std::string const& test, std::vector<std::string> const& environment, std::string const& input,
                      int code) {
  Child child(test, environment);
  if (!input.empty()) child.write(input);
  EXPECT_EQ(child.wait(), code) << test << " printed:\n" << child.output();
  return child.output();
}

void say(std::string const& mark, std::string const& text) { std::cout << mark << text << std::endl; }

bool mount_small_tmpfs(std::string const& directory, std::size_t bytes) {
  auto const id = geteuid();
  if (unshare(CLONE_NEWNS) != 0) {
    // Not root: a user namespace in which this user is.
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    std::ofstream("/proc/self/setgroups") << "deny";
    std::ofstream("/proc/self/uid_map") << "0 " << id << " 1";
  }
  auto const size = "size=" + std::to_string(bytes);
  return mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", directory.c_str(), "tmpfs", 0, size.c_str()) == 0;
}

}  // namespace davit::test
