module github.com/torch-mcast/torch-mcast

go 1.24.0
