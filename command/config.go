package command

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/faas-infer/faas-infer/command/report"
)

// configFlag names a file with values of flags, helpAllFlag asks for the help with all flags. Neither they
// nor --help are fields of such a file.
const (
	configFlag  = "config"
	helpAllFlag = "help-all"
)

// configurable lets a command take its flags from a YAML file, too, and lets its help show only the flags
// that people use most. --help-all shows all.
func configurable(c *cobra.Command, useful []string) {
	flags := c.Flags()
	file := flags.String(configFlag, "", "YAML `file` with values of flags, as faas-infer config show -o yaml prints them; flags of the command line come first")
	all := flags.Bool(helpAllFlag, false, "help with all flags")
	if err := c.MarkFlagFilename(configFlag, "yaml", "yml"); err != nil {
		panic(err) // The flag is defined above.
	}
	run, help := c.RunE, c.HelpFunc()
	c.RunE = func(c *cobra.Command, args []string) error {
		if *all {
			return c.Help()
		}
		read, err := readConfig(flags, *file)
		if err != nil {
			return err
		}
		return read.locate(run(c, args))
	}
	c.SetHelpFunc(func(c *cobra.Command, args []string) {
		var hidden []*pflag.Flag
		flags.VisitAll(func(f *pflag.Flag) {
			if !*all && !f.Hidden && !slices.Contains(useful, f.Name) && !slices.Contains([]string{configFlag, helpAllFlag, "help"}, f.Name) {
				hidden = append(hidden, f)
			}
		})
		for _, f := range hidden {
			f.Hidden = true
		}
		help(c, args)
		for _, f := range hidden {
			f.Hidden = false
		}
	})
}

// config is a file with values of flags, and the lines of its fields.
type config struct {
	file  string
	lines map[string]int
}

// readConfig sets the flags that a YAML file has and that were not given. "" is no file. The errors name the
// line and the field.
func readConfig(flags *pflag.FlagSet, file string) (config, error) {
	read := config{file, map[string]int{}}
	if file == "" {
		return read, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return read, fmt.Errorf("--config: %w", err)
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return read, usage(fmt.Errorf("--config %s: %w", file, err))
	}
	if len(document.Content) == 0 {
		return read, nil // It has only comments.
	}
	fields := document.Content[0]
	if fields.Kind != yaml.MappingNode {
		return read, usage(fmt.Errorf("%s:%d: it must have fields with the names of flags, such as listen: 127.0.0.1:8080", file, fields.Line))
	}
	for i := 0; i < len(fields.Content); i += 2 {
		if err := read.set(flags, fields.Content[i], fields.Content[i+1]); err != nil {
			return read, usage(fmt.Errorf("%s:%d: %s: %w", file, fields.Content[i].Line, fields.Content[i].Value, err))
		}
	}
	return read, nil
}

// set sets the flag of a field, unless it was given.
func (r config) set(flags *pflag.FlagSet, field, value *yaml.Node) error {
	name := field.Value
	if flags.Lookup(name) == nil || !isField(name) {
		var names []string
		flags.VisitAll(func(f *pflag.Flag) {
			if isField(f.Name) {
				names = append(names, f.Name)
			}
		})
		return fmt.Errorf("there is no such field%s", cmp.Or(didYouMean(similar(name, names)), "; faas-infer config show --all lists the fields"))
	}
	if line, twice := r.lines[name]; twice {
		return fmt.Errorf("line %d has the same field", line)
	}
	if flags.Changed(name) {
		return nil
	}
	r.lines[name] = field.Line
	flag, parts := flags.Lookup(name), []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		parts = value.Content
	}
	var texts []string
	for _, part := range parts {
		if part.Kind != yaml.ScalarNode {
			return fmt.Errorf("line %d must be a value or a list of values", part.Line)
		}
		texts = append(texts, part.Value)
	}
	many, ok := flag.Value.(pflag.SliceValue)
	if value.Kind == yaml.SequenceNode && !ok {
		return errors.New("it takes one value, not a list")
	}
	if value.Kind == yaml.SequenceNode {
		flag.Changed = true
		return many.Replace(texts)
	}
	if flag.Value.Type() == "bool" { // YAML has more words for these than flags.
		var yes bool
		if err := value.Decode(&yes); err != nil {
			return fmt.Errorf("%q: it must be true or false", value.Value)
		}
		texts[0] = strconv.FormatBool(yes)
	}
	return flags.Set(name, texts[0])
}

// isField reports whether a flag can be a field of a file.
func isField(flag string) bool {
	return !slices.Contains([]string{configFlag, helpAllFlag, "help"}, flag)
}

var flagInText = regexp.MustCompile(`--([a-z][a-z-]*)`)

// locate adds the line of the file to an error about a flag whose value comes from there.
func (r config) locate(err error) error {
	if err == nil || !errors.As(err, &usageError{}) {
		return err
	}
	if m := flagInText.FindStringSubmatch(err.Error()); m != nil && r.lines[m[1]] > 0 {
		return fmt.Errorf("%s:%d: %w", r.file, r.lines[m[1]], err)
	}
	return err
}

// newConfigCommand returns "faas-infer config".
func newConfigCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "config",
		Short: "Check a configuration file, and show the values of the flags",
		Long: `A configuration file has the values of flags of "faas-infer up" and "faas-infer provider",
which read it with --config. A field is a flag without its dashes, and a list may have a line
for each value.`,
	}
	c.AddCommand(newConfigShowCommand())
	return c
}

func newConfigShowCommand() *cobra.Command {
	var (
		file, of string
		all      bool
		out      report.Output
	)
	c := &cobra.Command{
		Use:        "show",
		SuggestFor: []string{"validate", "check"},
		Short:      "Check a configuration file and show its values, with --all those of all flags",
		Long: `show reads a configuration file as "faas-infer up" does, or with --for provider as "faas-infer
provider" does, checks it, and prints the values. An error names the line and the field. With --all the
table has all flags, with the values that the provider would have.`,
		Example: `  faas-infer config show --config faas-infer.yaml
  faas-infer config show --all -o wide`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var f upFlags
			flags := pflag.NewFlagSet(of, pflag.ContinueOnError)
			switch of {
			case "up":
				f.registerUp(flags)
			case "provider":
				registerProvider(&f.ProviderFlags, flags)
			default:
				return usage(fmt.Errorf("--for %q: it must be up or provider", of))
			}
			read, err := readConfig(flags, file)
			if err != nil {
				return err
			}
			if err := read.locate(usage(f.complete())); err != nil {
				return err
			}
			values, table := read.values(flags, all)
			return out.Print(c.OutOrStdout(), values, func() *report.Table { return table })
		},
	}
	c.Flags().StringVar(&file, configFlag, "", "YAML `file` with values of flags")
	c.Flags().StringVar(&of, "for", "up", "the command whose flags they are: up or provider")
	c.Flags().BoolVar(&all, "all", false, "the table has the defaults, too")
	out.Register(c.Flags())
	return c
}

// values returns the values of the flags that the file has, and a table of them, or of all flags.
func (r config) values(flags *pflag.FlagSet, all bool) (map[string]any, *report.Table) {
	values := map[string]any{}
	t := &report.Table{Columns: []report.Column{{Title: "FIELD"}, {Title: "VALUE"}, {Title: "FROM"}, {Title: "ABOUT", Wide: true}}}
	flags.VisitAll(func(f *pflag.Flag) {
		from := "default"
		if line := r.lines[f.Name]; line > 0 {
			from = fmt.Sprintf("line %d", line)
		} else if !all {
			return
		}
		var value any = f.Value.String()
		text := f.Value.String()
		if many, ok := f.Value.(pflag.SliceValue); ok {
			value, text = append([]string{}, many.GetSlice()...), strings.Join(many.GetSlice(), ",")
		}
		switch f.Value.Type() { // A flag prints what YAML reads.
		case "bool", "int", "int64", "float64":
			_ = yaml.Unmarshal([]byte(text), &value)
		case "intSlice", "float64Slice":
			_ = yaml.Unmarshal([]byte("["+text+"]"), &value)
		}
		if r.lines[f.Name] > 0 { // Some flags have a meaning even if they only repeat their default.
			values[f.Name] = value
		}
		t.Add(f.Name, cmp.Or(text, "-"), from, f.Usage)
	})
	return values, t
}
