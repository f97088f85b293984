#!/bin/sh
# Prints one line that describes a wrong variable of make, each by its name in the environment;
# nothing if all are right. The values become words of command lines: the Makefile calls this script
# before it fetches or builds anything.
#   make_variables.sh GOAL...
# TARGET and BOARD are checked only for the goals that read them: the environment may have them for
# another program.
set -u
LC_ALL=C
goals=" $* "
newline='
'
refuse() { printf '%s\n' "$1" | tr -d '\000-\011\013-\037\177'; exit 0; }
is_goal() { case $goals in *" $1 "*) ;; *) false ;; esac; }

for name in RECIPE BUDGET SCHEDULE RANKS TARGET BOARD STACK PROGRAM SOAK AGAINST PREFIX DESTDIR ROUNDS PARTS PROCESSOR TURNS BLESS BUILD REPRISE; do
  eval "value=\${$name:-}"
  case $value in *"$newline"*) refuse "$name must be one line" ;; esac
  case $name in
    RANKS | SOAK | ROUNDS | TURNS)
      case $value in *[!0-9]* | 0* | ??????????*) refuse "$name must be a whole number, 1 or more" ;; esac ;;
    STACK)
      case $value in *[!0-9KM]* | [KM]* | *[KM]?*) refuse "STACK must be a number of bytes, as 16384 or 16K" ;; esac ;;
    AGAINST)
      case $value in -*) refuse "AGAINST must be a commit or the folder of another build" ;; esac ;;
    PROGRAM)
      case $value in [-@]*) refuse "PROGRAM must be a source file; begin its path with ./" ;; esac ;;
    BUILD | REPRISE)  # in targets of rules, where make allows no quotes
      case $value in
        '' | -* | *[[:space:]\;\&\|\<\>\(\)\{\}\[\]\*\?\!\#\`\"\'\$\\:%=,]*) refuse "$name must be a path without spaces and signs that make or a shell reads" ;;
      esac ;;
  esac
done
for goal in run build plan fit audit board dist run-board; do
  if is_goal $goal && [ ! -e "${RECIPE:-}" ]; then refuse "RECIPE=${RECIPE:-}: is not there"; fi
done
if is_goal board || is_goal dist; then
  case ${TARGET:-} in jetson | aarch64) ;; *) refuse "TARGET must be jetson or aarch64, not \"${TARGET:-}\"" ;; esac
fi
if is_goal run-board || is_goal adapt-board; then
  boards=$(cd ports/cortex_m && echo mps*.ld | sed 's/\.ld//g')
  case " $boards " in *" ${BOARD:-} "*) ;; *) refuse "BOARD=${BOARD:-}: must be one of $boards" ;; esac
  case ${BOARD:-} in '' | *' '*) refuse "BOARD must be one of $boards" ;; esac
fi
