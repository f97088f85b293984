#!/bin/sh
# Tests the judges of machine code: hand-written loops are counted correctly, and planted faults are
# found. These are local memory in a main loop, a division by a call in a product, unstated dynamic
# shared memory, a spill, and a changed count. Reason: cuda_machine_code_test.sh would also pass if
# the judges found nothing. The test needs neither nvcc nor nvdisasm: a script replaces the latter.
set -eu
cd "$(dirname "$0")/../../.."
if ! command -v python3 >/dev/null 2>&1; then echo "skipped: no python3 here"; exit 0; fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() { echo "sass_counts: $1" >&2; exit 1; }

printf '#!/bin/sh\nfor cubin; do :; done; cat "${cubin%%.cubin}.sass"\n' >"$scratch/nvdisasm"
chmod +x "$scratch/nvdisasm"
cat >"$scratch/planted.ptx" <<'PTX'
.entry planted(
)
.maxntid 128, 1, 1
{
	// dynamic shared memory: 65536 bytes
	mov.b32 	%r1, reprise_dynamic_shared;
}
PTX
cat >"$scratch/planted.sm_87.ptxas" <<'LOG'
ptxas info    : Compiling entry function 'planted' for 'sm_87'
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 210 registers, used 1 barriers, 1024 bytes smem, 400 bytes cmem[0]
LOG
# A loop around a loop of two HMMA, left by a branch, by a call that never returns and by a path
# that joins later; then a loop of a load.
cat >"$scratch/planted.sass" <<'SASS'
.text.planted:
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   LDG.E.128.CONSTANT R4, [R2.64] ;
        /*0020*/                   LDG.E.U16 R8, [R2.64] ;
.L_x_1:
        /*0030*/                   LDSM.16.M88.4 R4, [R2] ;
        /*0040*/              @!PT LDS RZ, [RZ] ;
        /*0050*/               @P1 BRA `(.L_x_2) ;
        /*0060*/                   LDS.64 R4, [R2] ;
.L_x_2:
        /*0070*/                   HMMA.16816.F32.BF16 R4, R4, R8, R4 ;
        /*0080*/                   HMMA.16816.F32.BF16 R4, R4, R8, R4 ;
        /*0090*/              @!P0 CALL.REL.NOINC `(.L_x_3) ;
        /*00a0*/                   BRA `(.L_x_1) ;
.L_x_3:
        /*00b0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*00c0*/                   BRA P2, `(.L_x_0) ;
.L_x_4:
        /*00d0*/                   LDG.E.64 R4, [R2.64] ;
        /*00e0*/               @P0 BRA `(.L_x_4) ;
        /*00f0*/                   EXIT ;
.L_x_5:
        /*0100*/                   BRA `(.L_x_5);
SASS
: >"$scratch/planted.sm_87.cubin"
count() {  # count NAME [SED]: prints sass_counts.py's line of the kernel, changed by a sed script
  cp "$scratch/planted.ptx" "$scratch/$1.ptx"
  for kind in ptx sm_87.ptxas; do [ "$1" = planted ] || cp "$scratch/planted.$kind" "$scratch/$1.$kind"; done
  sed "${2:-}" "$scratch/planted.sass" >"$scratch/$1.sm_87.sass"
  tests/ports/machine_code/sass_counts.py "$scratch/nvdisasm" "$scratch/$1.sm_87.cubin"
}
expected='as_written planted: threads 128, registers 210, shared 1024 + 65536, blocks 2 by shared | loop 8: HMMA 2, LDSM 1 (16 B), LDS 1 (8 B), other 4; 4.00 for each HMMA | around 4: LDG 2 (18 B), BAR 1, other 1'
[ "$(count as_written)" = "$expected" ] || fail "counts otherwise: $(count as_written)"
count divides 's/LDS.64.*/CALL.REL.NOINC `($__internal_0_$__cuda_sm3x_div_rn_noftz_f32_slowpath) ;/' | grep -q '^fault: .*divides' || fail "does not see a division"
count spills 's/LDS.64/LDL/' | grep -q '^fault: .*local memory' || fail "does not see local memory"
sed -i '/dynamic shared/d' "$scratch/planted.ptx"
count unsaid | grep -q '^fault: .*dynamic shared' || fail "does not see that dynamic shared memory is not said"

# The comparison, in an invented output folder: equal to the golden, with another nvcc, with a
# changed count, with a spill.
mkdir -p "$scratch/build/cuda"
golden=tests/golden/cuda/sm_87.txt
ln -s "$(realpath "${BUILD:-build}/reprise")" "$scratch/build/reprise"
echo /usr/bin/nvdisasm >"$scratch/build/cuda/disassembler"
for source in cuda/*.cu cuda/*/*.cu tests/ports/cards/cuda_*_kernels.cu; do
  name=$(basename "$source" .cu)
  cp "$scratch/planted.sm_87.ptxas" "$scratch/build/cuda/$name.sm_87.ptxas"
  grep "^$name " "$golden" >"$scratch/build/cuda/$name.sm_87.counts" || true
done
compare() {
  env ARCHITECTURES=87 BLESS= BUILD="$scratch/build" tests/ports/machine_code/cuda_machine_code_test.sh >"$scratch/words" 2>&1
}
sed -n '1s/ for .*//p' "$golden" >"$scratch/build/cuda/compiler"
compare && grep -q 'as blessed' "$scratch/words" || fail "refuses what the golden says: $(cat "$scratch/words")"
sed -i '1s/registers/Registers/' "$scratch/build/cuda/rope.sm_87.counts"
! compare && grep -q 'BLESS=1' "$scratch/words" || fail "does not see a changed count: $(cat "$scratch/words")"
echo 'nvcc 99.0.1' >"$scratch/build/cuda/compiler"
compare && grep -q '^skipped: nvcc 99.0.1 here' "$scratch/words" || fail "compares the code of another nvcc: $(cat "$scratch/words")"
sed -i 's/, 0 bytes spill stores/, 8 bytes spill stores/' "$scratch/build/cuda/rope.sm_87.ptxas"
! compare && grep -q 'rope.cu: ptxas spilled' "$scratch/words" || fail "does not see a spill: $(cat "$scratch/words")"
echo "loops are counted as they stand, planted faults are found, and another nvcc is not compared"
