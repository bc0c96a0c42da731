package guide

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// page is a page with all kinds of blocks. Three apostrophes stand for a fence.
const page = `# A page

Make a folder.

'''sh
mkdir -p there && cd there
GREETING='hello   you'
'''

<!-- file: answer.sh -->
'''sh
echo "$1, 42"
'''

<!-- stays -->
'''sh
echo listening at 8080; exec sleep 100
'''

'''text
listening at …
'''

Prose, and a comment <!-- of another kind -->.

<!-- another -->

'''sh
echo begins
bash ../there/answer.sh "$GREETING"
'''

<!-- figures differ -->
'''text
hello you, 7
'''

<!-- fails -->
'''sh
false
echo on >&2
'''

<!-- not run: there is none -->
'''sh
exit 1
'''

'''python
print("from Python")
'''

'''text
from Python
'''

'''yaml
only: shown
'''
`

func parse(t *testing.T, text string) []Block {
	t.Helper()
	blocks, err := Parse(strings.ReplaceAll(text, "'''", "```"))
	if err != nil {
		t.Fatal(err)
	}
	return blocks
}

func reader(t *testing.T) *Reader {
	return &Reader{Dir: t.TempDir(), Env: os.Environ(), Patience: 30 * time.Second, Log: t.Output()}
}

// A page's commands run in one shell, one after the other.
func TestFollow(t *testing.T) {
	blocks := parse(t, page)
	if len(blocks) != 7 {
		t.Fatalf("there are %d blocks: %+v", len(blocks), blocks)
	}
	if first, third := blocks[0], blocks[2]; first.Line != 5 || !third.Stays || third.Shows != "listening at …\n" {
		t.Errorf("%+v, %+v", first, third)
	}
	r := reader(t)
	if err := r.Follow(t.Context(), blocks); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(r.Dir, "there", "answer.sh")); err != nil {
		t.Error(err)
	}
}

// An error has the block's line, the output and the reason.
func TestFollowTellsWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, page, want string }{
		{"failure", "'''sh\necho before\nfalse\n'''", "line 1: the command failed\necho before\nfalse\nbefore"},
		{"failure in a pipe", "'''sh\nfalse | true\n'''", "the command failed"},
		{"unset variable", "'''sh\necho $NONE_OF_THAT_NAME\n'''", "NONE_OF_THAT_NAME"},
		{"shell left", "'''sh\nexit 0\n'''", "the command failed"},
		{"other output", "'''sh\necho 1\n'''\n\n'''text\n2\n'''", `the output has no line like "2"`},
		{"success where none was to be", "<!-- fails -->\n'''sh\ntrue\n'''", "should fail, and succeeded"},
		{"what does not stay", "<!-- stays -->\n'''sh\necho no\n'''\n'''text\nyes\n'''", "the command ended"},
		{"Python", "'''python\nraise ValueError('of mine')\n'''", "of mine"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := reader(t).Follow(t.Context(), parse(t, c.page))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

// A command that does not end is killed after Patience, with its children.
func TestFollowGivesUp(t *testing.T) {
	r := reader(t)
	r.Patience = 200 * time.Millisecond
	err := r.Follow(t.Context(), parse(t, "'''sh\nsleep 100 & sleep 100\n'''"))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// Names are replaced in commands, in files and in the expected output.
func TestReplace(t *testing.T) {
	r := reader(t)
	r.Replace = []string{"example.com", "here"}
	blocks := parse(t, "<!-- file: name -->\n'''text\nexample.com\n'''\n'''sh\ncat name; echo example.com/b\n'''\n'''text\nexample.com\nexample.com/b\n'''")
	if err := r.Follow(t.Context(), blocks); err != nil {
		t.Error(err)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct{ page, want string }{
		"no end":           {"a\n'''sh\ntrue\n", "line 2"},
		"output of none":   {"'''text\na\n'''", "no command"},
		"mark of no block": {"<!-- stays -->\nprose\n", "line 2"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(strings.ReplaceAll(c.page, "'''", "```")); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestShown(t *testing.T) {
	for name, c := range map[string]struct {
		page, printed string
		figures, same bool
	}{
		"the same":           {"a b\n", "a b\n", false, true},
		"blanks":             {"a b", "  a    b  ", false, true},
		"lines between":      {"a\nc", "a\nb\nc", false, true},
		"lines in front":     {"b", "a\nb", false, true},
		"another order":      {"b\na", "a\nb", false, false},
		"a part of a line":   {"a", "ab", false, false},
		"anything":           {"at …, now", "at 8080, now", false, true},
		"a line of anything": {"a\n…\nb", "a\nb", false, true},
		"another number":     {"took 3", "took 4", false, false},
		"an example":         {"took 3.5ms (p99 1,200)", "took 950µs (p99 7)", true, true},
		"numbers of a list":  {"[0.98,1.4e-08]", "[1.2e-05,0.3]", true, true},
		"another many":       {"[0.98,1.4e-08]", "[0.98,0.1,0.2]", true, false},
		"no number":          {"took 3", "took long", true, false},
		"a pattern's signs":  {"a.b (c)", "axb (c)", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Shown(c.page, c.printed, c.figures); (err == nil) != c.same {
				t.Errorf("%v", err)
			}
		})
	}
}
