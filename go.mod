module github.com/torch-mcast/torch-mcast

go 1.26.0

require (
	github.com/agnivade/levenshtein v1.2.1
	github.com/stretchr/testify v1.12.1
)

require (
	github.com/alecthomas/kong v1.15.0
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/klauspost/cpuid/v2 v2.4.2
	github.com/pmezard/go-difflib v1.0.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/net v0.50.0 // indirect
	golang.org/x/sync v0.24.0
	golang.org/x/sys v0.41.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
	pgregory.net/rapid v1.3.0
)
