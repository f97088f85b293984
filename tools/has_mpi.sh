#!/bin/sh
# Exits with 0 if an MPI's compiler wrapper finds mpi.h: has_mpi.sh [WRAPPER]. CXX names the
# compiler. The wrapper alone is not enough: Debian's is in openmpi-bin, the header in
# libopenmpi-dev.
echo '#include <mpi.h>' | OMPI_CXX="${CXX:-g++}" MPICH_CXX="${CXX:-g++}" "${1:-mpicxx}" -x c++ -fsyntax-only - 2>/dev/null
