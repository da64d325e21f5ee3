package reduce

//go:generate go run -C gen .

var engines = [numLevels]engine{
	Generic: {level: Generic, vector: 1, kernels: &table{}, streams: &table{}, steps: &[numSteps]table{}},
	AVX2:    {level: AVX2, vector: 32, kernels: &avx2Kernels, streams: &avx2Streams, steps: &avx2Steps},
	AVX512:  {level: AVX512, vector: 64, kernels: &avx512Kernels, streams: &avx512Streams, steps: &avx512Steps},
}
