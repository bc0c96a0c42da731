// Command man writes the man pages of faas-infer, one for each command, into the directory that it is given. It is
// no subcommand: the library that makes them would cost every instance 0.2 MB of memory and 0.2 ms of start time.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra/doc"

	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/command/report"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./scripts/man DIR")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write writes the pages with today's date, or that of $SOURCE_DATE_EPOCH. They have all flags.
func write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root := command.NewRootCommand()
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Section: "1", Source: "faas-infer " + report.ReleaseOrCommit(), Manual: "faas-infer"}, dir)
}
