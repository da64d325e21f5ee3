//go:build !amd64

package reduce

var engines = [numLevels]engine{
	Generic: {level: Generic, vector: 1, kernels: &table{}, streams: &table{}, steps: &[numSteps]table{}},
}
