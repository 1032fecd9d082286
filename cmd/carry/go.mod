module workload.openshift.io/kubernetes/cmd/carry

go 1.26.0

require (
	github.com/jstemmer/go-junit-report/v2 v2.1.0
	github.com/spf13/cobra v1.10.2
	golang.org/x/mod v0.42.0
	golang.org/x/sync v0.24.0
	golang.org/x/term v0.45.0
	golang.org/x/tools v0.52.0
	gotest.tools/gotestsum v1.13.0
)

require (
	github.com/bitfield/gotestdox v0.2.2 // indirect
	github.com/fatih/color v1.18.0 // indirect
	github.com/inconshreveable/mousetrap v1.1.0 // indirect
	github.com/mattn/go-colorable v0.1.13 // indirect
	github.com/mattn/go-isatty v0.0.20 // indirect
	github.com/spf13/pflag v1.0.9 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.17.0 // indirect
)
