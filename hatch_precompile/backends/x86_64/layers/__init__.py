"""Layers on x86-64: which functions multiply them, and the kernels that are ours. What is taken when:

- float32, read weights (blas_choice.py): MKL or oneDNN. The library of the graph asks the processor where it
  runs: with AVX-512, except on Intel's, oneDNN takes all but small layers. Weights may be transposed, as
  GPT-2's are.
- float32, fixed weights (panels.py): our own functions, with AVX-512 for up to 128 rows, and oneDNN for more;
  without it for up to 32, and for more where the processor has no AVX-512 either. Those weights are prepacked
  where the wheel runs, as that processor says.
- bfloat16: the tiles of AMX where the processor has them, and AVX-512's instructions otherwise.
- int8 (integers.py): likewise; with AMX in the variant for any number of rows, without VNNI for up to 32.
  Where the processor has none, torch has plain loops, so all such layers, with read weights too, are
  functions of the library.
- convolutions with fixed weights (packing.py, epilogues.py): prepacked for oneDNN, with what is multiplied
  with their channels or added to them; where sizes are not known, as suits the sample's. Relu, clamp and hard
  sigmoid stay out.
- 3 x 3 float32 convolutions with fixed weights and stride 1, between channels that are multiples of 16
  (winograd.py): Winograd's algorithm. A variant without AVX-512 leaves them to oneDNN on a processor with it.
- depthwise convolutions of float32, and with fixed weights those by 1 x 1 filters (convolutions.py), with
  AVX-512 in the variant: our own functions, which with fixed weights do what follows them, too.
- LSTM and GRU layers of float32 (recurrent.py): the inputs' product is a layer like any other, for all steps
  at once; the steps are one call of our own function. Of weights that are read, those of the states are
  packed at each call.
- convolutions with read weights (memory_format.py): as they lie, if the weights are twice as many as the
  images' numbers.
- `float32-matmul-precision = "medium"` (matmul_precision.py): factors rounded to bfloat16 in variants that
  have it.
"""
