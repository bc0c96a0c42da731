package instances

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/cluster"
)

// Role is a way to serve an instance beside that of a whole model. It becomes the hidden subcommand
// "instance NAME", with the flags of all instances and its own, which are hidden flags of "instance", too.
type Role struct {
	// Name is the subcommand. Short, Long and Example are its help.
	Name, Short, Long, Example string
	// New makes an instance of the role with its flags at their defaults.
	New func() Instance
	// Of returns the role's own flags for an instance that the provider starts to listen at an address,
	// such as unix:///run/1.sock, and reports whether the instance has the role.
	Of func(spec cluster.InstanceSpec, listen string) (arguments []string, is bool)
	// Takes reports whether what the flags name is for the role only, so that an instance of a whole model
	// refuses it; nil never.
	Takes func(f *Flags) bool
	// Assumes reports whether an instance that was started as that of a whole model has the role by its
	// environment, as in a pod whose image may be older than the role; nil never.
	Assumes func(f *Flags) bool
	// FromEmpty says that an empty instance which stands by may become one of the role.
	FromEmpty bool
}

// Instance is one instance of a role.
type Instance interface {
	// Flags defines the role's own flags.
	Flags(flags *pflag.FlagSet)
	// Check refuses flags that do not fit together. The error names the flag.
	Check(f *Flags) error
	// Open loads what the instance serves. The caller closes it.
	Open(ctx context.Context, f *Flags, logger zerolog.Logger) (*Served, error)
}

// roles are those that are registered.
var roles []Role

// Register adds a role. Rooms of papers call it when they are initialised. A name that is taken panics.
func Register(r Role) {
	if slices.ContainsFunc(roles, func(other Role) bool { return other.Name == r.Name }) {
		panic("two roles of an instance are named " + r.Name)
	}
	roles = append(roles, r)
}

// Arguments are the words after the program's name that start an instance listening at an address: the
// command, and the role with its own flags. The flags of all instances follow. A pod gets the flags only: the
// program in its image may be older than the subcommands, and had the same flags.
func Arguments(spec cluster.InstanceSpec, listen string) []string {
	for _, r := range roles {
		arguments, is := r.Of(spec, listen)
		switch {
		case is && OnMachine(listen):
			return append([]string{"instance", r.Name}, arguments...)
		case is:
			return append([]string{"instance"}, arguments...)
		}
	}
	return []string{"instance"}
}

// OnMachine reports whether an instance listens at a socket, and so is on the provider's machine and no pod.
func OnMachine(listen string) bool { return strings.HasPrefix(listen, "unix:") }

// command returns the subcommand of a role.
func (r Role) command() *cobra.Command {
	var f Flags
	as := r.New()
	c := &cobra.Command{
		Use: r.Name, Short: r.Short, Long: r.Long, Example: r.Example, Hidden: true,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.enter(c, as, r.FromEmpty) },
	}
	f.define(c.Flags())
	as.Flags(c.Flags())
	return c
}

// Preparer prepares what is neither an ONNX file nor a bundle, for "instance prepare".
type Preparer interface {
	// Flags defines its flags.
	Flags(flags *pflag.FlagSet)
	// Takes reports whether it prepares a file. The error says that one of its flags is not for the file.
	Takes(model string) (bool, error)
	// Prepare prepares a file and writes the prepared directory, or all figures as JSON.
	Prepare(ctx context.Context, out io.Writer, p Preparation) error
}

// Preparation is one run of "instance prepare".
type Preparation struct {
	// Model is the file, Cache the directory for prepared models, and Library the ONNX Runtime library,
	// "" for the usual one.
	Model, Cache, Library string
	// JSON asks for all figures.
	JSON bool
}

// preparers make those that are registered.
var preparers []func() Preparer

// RegisterPreparer adds a kind of file that "instance prepare" takes. Rooms of papers call it when they are
// initialised.
func RegisterPreparer(create func() Preparer) { preparers = append(preparers, create) }
