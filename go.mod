module github.com/torch-mcast/torch-mcast

go 1.24.0

require (
	github.com/agnivade/levenshtein v1.2.1
	github.com/alecthomas/kong v1.15.0 // indirect
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/stretchr/testify v1.11.1
	golang.org/x/sys v0.36.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)
