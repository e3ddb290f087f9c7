// What CLI11 reads otherwise than who has written a command line.
#ifndef SLUICE_ENGINE_TEXT_ARGUMENTS_H_
#define SLUICE_ENGINE_TEXT_ARGUMENTS_H_

#include <string>
#include <string_view>
#include <vector>

namespace sluice {

// "--name=", whose value is empty: CLI11 takes the next argument for it.
inline bool HasEmptyValue(std::string_view argument) {
  return argument.size() > 3 && argument.starts_with("--") &&
         argument.find('=') == argument.size() - 1;
}

// The arguments with each of these as "--name" and "", which it reads as
// meant, but for what stands behind "--".
inline std::vector<std::string> WithEmptyValues(
    const std::vector<std::string>& arguments) {
  std::vector<std::string> split;
  bool options = true;
  for (const std::string& argument : arguments) {
    options = options && argument != "--";
    if (options && HasEmptyValue(argument)) {
      split.push_back(argument.substr(0, argument.size() - 1));
      split.emplace_back();
    } else {
      split.push_back(argument);
    }
  }
  return split;
}

// The command within another one; null: it has none of that name. App is
// CLI::App.
template <typename App>
const App* NestedCommand(const App& command, const std::string& name) {
  for (const App* nested :
       command.get_subcommands([](const App*) { return true; })) {
    if (nested->get_name() == name) return nested;
  }
  return nullptr;
}

// The first of these that is a switch, which takes no value and so nothing
// behind it, either; empty: there is none. App is CLI::App.
template <typename App>
std::string EmptySwitch(const App& app,
                        const std::vector<std::string>& arguments) {
  const App* command = &app;
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (HasEmptyValue(argument)) {
      const auto* option =
          command->get_option_no_throw(argument.substr(0, argument.size() - 1));
      if (option != nullptr && option->get_items_expected_max() == 0) {
        return argument;
      }
      continue;
    }
    if (const App* nested = NestedCommand(*command, argument)) command = nested;
  }
  return {};
}

// The arguments with "./" before each path that is in brackets, where a command
// takes several paths: CLI11 takes "[x]" for a list that holds "x", "[a,b]" for
// "a" and "b". Values of options stay. The arguments are WithEmptyValues', App
// is CLI::App.
template <typename App>
std::vector<std::string> WithBracketsInPaths(
    const App& app, std::vector<std::string> arguments) {
  const App* command = &app;
  const auto takes_several = [&command] {
    for (const auto* option : command->get_options()) {
      if (option->get_positional() && option->get_allow_extra_args()) {
        return true;
      }
    }
    return false;
  };
  bool options = true;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string& argument = arguments[i];
    if (options && argument == "--") {
      options = false;
    } else if (options && argument.size() > 1 && argument.starts_with('-')) {
      const auto* option = command->get_option_no_throw(argument);
      // The next one is its value.
      if (option != nullptr && option->get_items_expected_max() > 0) ++i;
    } else if (const App* nested = NestedCommand(*command, argument)) {
      command = nested;
    } else if (argument.starts_with('[') && argument.ends_with(']') &&
               takes_several()) {
      argument.insert(0, "./");
    }
  }
  return arguments;
}

// What is wrong with a number that CLI11 reads; empty: nothing. Integers with
// a leading zero are octal to it.
inline std::string WrongDecimal(std::string_view text) {
  const size_t sign = text.starts_with('+') || text.starts_with('-') ? 1 : 0;
  const std::string_view digits = text.substr(sign);
  if (digits.size() < 2 || digits[0] != '0' || digits[1] < '0' ||
      digits[1] > '9') {
    return {};
  }
  return "wanted a decimal number, got '" + std::string(text) + "'";
}

}  // namespace sluice

#endif  // SLUICE_ENGINE_TEXT_ARGUMENTS_H_
