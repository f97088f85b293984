#!/bin/sh
# Whether an MPI's wrapper of the compiler finds mpi.h: has_mpi.sh [WRAPPER]. CXX names the compiler.
# Here because a wrapper alone is no MPI: Debian's comes with openmpi-bin, the header with libopenmpi-dev.
echo '#include <mpi.h>' | OMPI_CXX="${CXX:-g++}" MPICH_CXX="${CXX:-g++}" "${1:-mpicxx}" -x c++ -fsyntax-only - 2>/dev/null
