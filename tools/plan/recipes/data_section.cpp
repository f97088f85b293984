// A recipe's "data".
#include <set>

#include "tools/files/formats/json_text.h"
#include "tools/plan/recipes/sections.h"

namespace reprise {
namespace {

using nlohmann::json;
using Kind = DataSource::Kind;
using Input = ModelDescription::Input;

std::vector<std::string> kinds_that(bool (*gives)(const DataKind&)) {
  std::vector<std::string> words;
  for (const DataKind& kind : kDataKinds) {
    if (gives(kind)) words.emplace_back(kind.word);
  }
  return words;
}

const DataKind* find_kind(Kind wanted) {
  for (const DataKind& kind : kDataKinds) {
    if (kind.kind == wanted) return &kind;
  }
  return nullptr;  // for Kind::kNone
}

void read_kind(const JsonFields& fields, Kind& target) {
  std::vector<std::string> words;
  for (const DataKind& kind : kDataKinds) words.emplace_back(kind.word);
  fields.require_one_of("kind", words, {"What the data are; \"Data\" in tools/FILES.md says what each kind reads"});
  for (const DataKind& kind : kDataKinds) {
    if (fields.at("kind") == kind.word) target = kind.kind;
  }
}

// Reads `numbers` from a number for all channels, or from a list of one number for each channel.
void read_channel_numbers(const JsonFields& fields, const std::string& key, const FieldRange& range,
                          std::vector<double>& numbers, const KeyText& text) {
  const auto form = [&] { return either_form(number_form(range), list_form(number_form(range))); };
  fields.note(key, form, [] { return json(); }, text);
  if (!fields.has(key)) return;
  numbers.clear();
  if (!fields.at(key).is_array()) return numbers.push_back(fields.number_in(key, fields.at(key), range));
  for (const json& value : fields.list_at(key)) numbers.push_back(fields.number_in(key, value, range));
  if (numbers.empty()) fields.refuse(key, "must be a number or a list of one number for each channel, not []");
}

void check_channel_numbers(const std::vector<double>& numbers, const std::string& field, int channels,
                           const RecipeRules& rules) {
  rules.require(numbers.size() <= 1 || numbers.size() == static_cast<size_t>(channels), field,
                "must be one number or one for each of the " + std::to_string(channels) + " channels, not a list of " +
                    std::to_string(numbers.size()));
}

void check_images(const DataSource& data, const ModelDescription& model, const RecipeRules& rules) {
  check_channel_numbers(data.mean, "data.mean", model.image_channels, rules);
  check_channel_numbers(data.std, "data.std", model.image_channels, rules);
  rules.require(data.crop < model.image_height && data.crop < model.image_width, "data.augment.crop",
                "must be less than the image's height and width, not " + std::to_string(data.crop));
  rules.require(data.kind != Kind::kTensors || (data.mean.empty() && data.std.empty()), "data.mean",
                "leave \"mean\" and \"std\" out: \"tensors\" are used as they are");
  const bool are_pictures =
      data.kind == Kind::kImageFolder || data.kind == Kind::kCsv || data.kind == Kind::kMaskFolder;
  rules.require(!are_pictures || model.image_channels == 1 || model.image_channels == 3, "model.image",
                std::string("must have 1 or 3 channels for data of kind \"") +
                    (are_pictures ? find_kind(data.kind)->word : "") + "\", not " +
                    std::to_string(model.image_channels));
}

// Requires that the data provide the labels that the net's loss needs.
void check_labels(const DataSource& data, const DataKind* kind, const ModelDescription& model,
                  const RecipeRules& rules) {
  using Target = ModelDescription::Target;
  static constexpr const char* kWanted[] = {"a class of each sample",      "numbers", "labels that are true or false",
                                            "a class of each place",       "pairs",   "pairs that are alike or not",
                                            "pairs and how alike they are"};
  std::string words;
  for (const DataKind& each : kDataKinds) {
    const bool suits = model.input == Input::kTexts ? each.texts : each.images;
    if (suits && each.feeds(model.target)) words += (words.empty() ? "\"" : " or \"") + std::string(each.word) + "\"";
  }
  rules.require(kind == nullptr || kind->feeds(model.target), "data.kind",
                std::string("the net's loss wants ") + kWanted[static_cast<size_t>(model.target)] + "; must be " +
                    words);
  const bool are_maps = model.target != Target::kClass && model.output.size() > 1;
  rules.require(!are_maps || data.crop == 0, "data.augment.crop",
                "leave it out: of maps, the labels would have to be cut, too");
  rules.require(!are_maps || data.kind != Kind::kCsv, "data.kind",
                "\"csv\" has numbers of a whole image, and the net writes maps; must be \"tensors\" or \"synthetic\"");
  rules.require(data.mask_values.empty() || data.mask_values.size() == static_cast<size_t>(model.classes),
                "data.mask_values",
                "must have one number for each of the net's " + std::to_string(model.classes) + " classes, not " +
                    std::to_string(data.mask_values.size()));
  rules.require(model.class_weights.empty() || data.broken == DataSource::Broken::kRefuse, "data.broken",
                "must be \"refuse\" where classes have weights: what a step's labels count is known before its "
                "pictures are decoded");
}

constexpr Word<TrainOn> kTrainOn[] = {{"assistant", TrainOn::kAssistant}, {"all", TrainOn::kAll}};
constexpr Word<DataSource::TooLong> kTooLong[] = {{"refuse", DataSource::TooLong::kRefuse},
                                                  {"cut", DataSource::TooLong::kCut}};

constexpr Word<DataSource::Bad> kBad[] = {{"refuse", DataSource::Bad::kRefuse}, {"skip", DataSource::Bad::kSkip}};

void read_chat_settings(const JsonFields& fields, DataSource& data) {
  fields.read("control_tokens", data.chat.control_tokens,
              {"Whether letters that spell a control token are that token: of texts, and in \"chat\" of what the "
               "assistant says; of \"text\", \"chat\" and \"preferences\""});
  fields.read("chat_template", data.chat.template_name,
              {"Which of a model's named chat templates writes its conversations; of \"chat\" and \"preferences\"", "",
               "\"tool_use\" where a record has tools and the model has that, else \"default\""});
  fields.note(
      "chat_template_kwargs", [] { return object_form(); }, [] { return json(); },
      {"Variables that every conversation gives to the chat template, such as {\"enable_thinking\": false}; of "
       "\"chat\" and \"preferences\"",
       "", "none"});
  if (fields.has_value("chat_template_kwargs")) {
    const json& kwargs = fields.at("chat_template_kwargs");
    if (!kwargs.is_object())
      fields.refuse("chat_template_kwargs", std::string("must be an object, not ") + json_kind(kwargs));
    for (const char* const key : {"messages", "tools", "add_generation_prompt"}) {
      if (kwargs.contains(key))
        fields.refuse("chat_template_kwargs", json_shown(std::string(key)) + ": leave it out: a record says it itself");
    }
    if (!kwargs.empty()) data.chat.template_kwargs = kwargs.dump();
  }
  const bool converses = data.kind == Kind::kChat || data.kind == Kind::kPreferences;
  if (!data.chat.control_tokens && !converses && data.kind != Kind::kText)
    fields.refuse("control_tokens", "leave it out: it is for data of kind \"text\", \"chat\" or \"preferences\"");
  if (!data.chat.template_name.empty() && !converses)
    fields.refuse("chat_template", "leave it out: it is for data of kind \"chat\" or \"preferences\"");
  if (!data.chat.template_kwargs.empty() && !converses)
    fields.refuse("chat_template_kwargs", "leave it out: it is for data of kind \"chat\" or \"preferences\"");
}

void read_chat(const JsonFields& fields, DataSource& data) {
  fields.read("pack", data.pack,
              {"Whether a row of \"sequence\" tokens holds several samples, none of which sees another; of \"chat\" "
               "and \"preferences\""});
  fields.read_choice("train_on", data.train_on, kTrainOn,
                     {"What is learned: what the assistant says and the end of its turn, or every token; of \"chat\""});
  fields.read_choice("too_long", data.too_long, kTooLong,
                     {"Whether a sample of more than \"sequence\" tokens is refused, or cut at its end; of \"chat\""});
  fields.read_choice("bad", data.bad, kBad,
                     {"Whether a record that cannot be trained on ends the run, or is skipped and counted; of \"chat\" "
                      "and \"preferences\""});
  if (data.kind == Kind::kChat) return;
  const bool of_pairs = data.kind == Kind::kPreferences;
  const std::pair<const char*, bool> changed[] = {{"pack", data.pack && !of_pairs},
                                                  {"train_on", data.train_on != DataSource().train_on},
                                                  {"too_long", data.too_long != DataSource().too_long},
                                                  {"bad", data.bad != DataSource().bad && !of_pairs}};
  for (const auto& [key, is_changed] : changed) {
    const bool is_for_both = key == std::string("pack") || key == std::string("bad");
    if (is_changed)
      fields.refuse(key, std::string("leave it out: it is for data of kind \"chat\"") +
                             (is_for_both ? " and \"preferences\"" : ""));
  }
}

void read_columns(const JsonFields& fields, DataSource& data) {
  fields.read("columns", data.columns,
              {"The columns that are read, a sample's first and then its labels; of \"csv\" and \"texts\"", "",
               "all, in their order"});
  if (data.columns.empty()) return;
  if (data.kind != Kind::kCsv && data.kind != Kind::kTexts)
    fields.refuse("columns", "leave it out: it is for data of kind \"csv\" or \"texts\"");
}

void read_mask_values(const JsonFields& fields, DataSource& data) {
  constexpr int kMax = 65535;
  fields.read("mask_values", data.mask_values, 0, kMax,
              {"The numbers that stand for the net's classes in masks, one for each class in their order, as [0, 255]; "
               "of a \"mask_folder\"",
               "", "a number is its class, 255 none"});
  if (data.mask_values.empty()) return;
  if (data.kind != Kind::kMaskFolder)
    fields.refuse("mask_values", "leave it out: it is for data of kind \"mask_folder\"");
  if (std::set<int>(data.mask_values.begin(), data.mask_values.end()).size() < data.mask_values.size())
    fields.refuse("mask_values", "must name each number once");
}

void read_held_out(const JsonFields& fields, DataSource& data) {
  constexpr FieldRange kAtMostHalf = {0, 0.5};
  fields.read("held_out", data.held_out, kAtMostHalf,
              {"The share of the training set that is not trained on but evaluated; of \"text\", \"tokens\", \"chat\", "
               "\"preferences\" and \"texts\", without eval_path"});
  if (data.held_out == 0) return;
  const bool has_rows = data.kind == Kind::kText || data.kind == Kind::kTokens || data.kind == Kind::kChat ||
                        data.kind == Kind::kPreferences || data.kind == Kind::kTexts;
  if (!has_rows)
    fields.refuse("held_out",
                  "leave it out: it is for data of kind \"text\", \"tokens\", \"chat\", \"preferences\" or \"texts\"");
  if (!data.eval_path.empty())
    fields.refuse("held_out", "cannot go with eval_path, which names what is evaluated; leave one out");
}

constexpr Word<DataSource::Broken> kBroken[] = {{"refuse", DataSource::Broken::kRefuse},
                                                {"skip", DataSource::Broken::kSkip}};

}  // namespace

DataSource read_data(const JsonFields& fields, const std::string& folder) {
  fields.allow_only({"kind",        "path",     "eval_path",      "shuffle",       "mean",
                     "std",         "augment",  "token_bytes",    "tokenizer",     "columns",
                     "mask_values", "broken",   "pack",           "train_on",      "too_long",
                     "bad",         "held_out", "control_tokens", "chat_template", "chat_template_kwargs"});
  DataSource data;
  read_kind(fields, data.kind);
  fields.read_path("path", folder, data.path,
                   {"The file or folder of the training set", "", "required, but for \"synthetic\""});
  fields.read_path("eval_path", folder, data.eval_path,
              {"The evaluation set", "", "none; \"idx\" has the t10k files beside the training set"});
  if (data.path.empty() && data.kind != Kind::kSynthetic)
    fields.refuse("path", "missing; give the file or folder of the data");
  fields.read("shuffle", data.shuffle,
              {"Whether every pass over the set takes an order of its own; false: the file's order"});
  read_channel_numbers(fields, "mean", kAnyNumber, data.mean,
                       {"Taken from every pixel; one number, or one for each channel; not for \"tensors\"",
                        "pixels / 255", "0"});
  read_channel_numbers(fields, "std", kPositive, data.std,
                       {"Every pixel is divided by it after that; one number, or one for each channel", "pixels / 255",
                        "1"});
  if (fields.has("augment")) {
    const JsonFields augment =
        fields.object("augment", {"What changes an image at random; of images only", "", "none"});
    augment.allow_only({"flip", "crop"});
    augment.read("flip", data.flip, {"Mirrors half the images, left to right"});
    augment.read("crop", data.crop, 0, 65536,
                 {"Zero padding on every side, before a random crop back to the image's size", "pixels"});
  }
  fields.read("token_bytes", data.token_bytes, 2, 4, {"The size of a token of kind \"tokens\": 2 or 4", "bytes"});
  if (data.token_bytes == 3) fields.refuse("token_bytes", "must be 2 or 4, not 3");
  fields.read_path(
      "tokenizer", folder, data.tokenizer,
      {"The tokenizer of a net of texts: a folder that has one, tokenizer.json, or vocab.txt; of \"texts\" and \"csv\"",
       "", "none"});
  read_columns(fields, data);
  read_mask_values(fields, data);
  fields.read_choice("broken", data.broken, kBroken,
                     {"Whether a picture that cannot be decoded ends the run or is skipped; of an \"image_folder\""});
  if (data.broken == DataSource::Broken::kSkip && data.kind != Kind::kImageFolder)
    fields.refuse("broken", "leave it out: it is for the pictures of an \"image_folder\"");
  read_chat(fields, data);
  read_chat_settings(fields, data);
  read_held_out(fields, data);
  return data;
}

void check_data(const Recipe& recipe, const RecipeRules& rules) {
  const DataSource& data = recipe.data;
  const ModelDescription model = describe_model(recipe.model);
  const DataKind* kind = find_kind(data.kind);
  rules.require(data.tokenizer.empty() || model.input == Input::kTexts, "data.tokenizer",
                "leave it out: it is for nets of texts");
  const auto require_no_images = [&] {
    rules.require(data.mean.empty() && data.std.empty() && !data.flip && data.crop == 0, "data",
                  "leave \"mean\", \"std\" and \"augment\" out: they are for images");
  };
  if (model.input == Input::kImages) {
    rules.require(kind == nullptr || kind->images, "data.kind",
                  "an image model needs " + either_of(kinds_that([](const DataKind& k) { return k.images; })));
    check_images(data, model, rules);
    check_labels(data, kind, model, rules);
  } else if (model.input == Input::kTexts) {
    rules.require(kind == nullptr || kind->texts, "data.kind",
                  "a net of texts needs " + either_of(kinds_that([](const DataKind& k) { return k.texts; })));
    const bool has_texts = data.kind == Kind::kCsv || data.kind == Kind::kTexts;
    rules.require(has_texts == !data.tokenizer.empty() || kind == nullptr, "data.tokenizer",
                  data.tokenizer.empty() ? "missing; give the folder of the model's tokenizer"
                                         : "leave it out: it is for data of kind \"texts\" or \"csv\"");
    require_no_images();
    check_labels(data, kind, model, rules);
  } else {
    rules.require(kind == nullptr || kind->tokens, "data.kind",
                  "a language model needs " + either_of(kinds_that([](const DataKind& k) { return k.tokens; })));
    require_no_images();
    rules.require((data.kind == Kind::kPreferences) == recipe.loss.has_value() || kind == nullptr,
                  recipe.loss ? "loss" : "data.kind",
                  "\"loss\" and data of kind \"preferences\" go together: give both, or neither");
    rules.require((data.kind != Kind::kChat && data.kind != Kind::kPreferences) || !recipe.place.path().empty(),
                  "data.kind",
                  "\"chat\" and \"preferences\" need a model with a tokenizer and a chat template: \"model\": "
                  "{\"huggingface\": ...} or {\"gguf\": ...}");
    rules.require(!data.pack || model.packs, "data.pack",
                  "cannot be with this family of models: its positions do not start anew within a row");
  }
}

json data_json(const DataSource& data) {
  json value = {{"kind", find_kind(data.kind)->word},
                {"shuffle", data.shuffle},
                {"augment", {{"flip", data.flip}, {"crop", data.crop}}},
                {"token_bytes", data.token_bytes}};
  if (!data.path.empty()) value["path"] = data.path;
  if (!data.eval_path.empty()) value["eval_path"] = data.eval_path;
  if (!data.tokenizer.empty()) value["tokenizer"] = data.tokenizer;
  if (!data.columns.empty()) value["columns"] = data.columns;
  if (!data.mask_values.empty()) value["mask_values"] = data.mask_values;
  if (data.broken == DataSource::Broken::kSkip) value["broken"] = "skip";
  if (data.kind == Kind::kPreferences) value["pack"] = data.pack;
  if (data.kind == Kind::kChat) {
    value["pack"] = data.pack;
    value["train_on"] = word_of(kTrainOn, data.train_on);
    value["too_long"] = word_of(kTooLong, data.too_long);
  }
  if (data.bad != DataSource::Bad::kRefuse) value["bad"] = word_of(kBad, data.bad);
  if (!data.chat.control_tokens) value["control_tokens"] = false;
  if (!data.chat.template_name.empty()) value["chat_template"] = data.chat.template_name;
  if (!data.chat.template_kwargs.empty()) value["chat_template_kwargs"] = json::parse(data.chat.template_kwargs);
  if (data.held_out > 0) value["held_out"] = data.held_out;
  if (!data.mean.empty()) value["mean"] = data.mean;
  if (!data.std.empty()) value["std"] = data.std;
  return value;
}

}  // namespace reprise
