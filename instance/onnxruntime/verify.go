package onnxruntime

import (
	"bytes"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	ort "github.com/yalue/onnxruntime_go"

	"github.com/faas-infer/faas-infer/instance/engine"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// verifierEnv makes a process of this program a verifier: see init. Its value is the path of the
// library.
const verifierEnv = "FAAS_INFER_VERIFIER"

// self is the program that verifiers run.
var self = "/proc/self/exe"

// ordered is called before an order is carried out, for tests.
var ordered = func(order) {}

// verifier writes the forms of a model and runs them in a child process, because the engine
// may end the process that loads a form which it wrote itself. The child is this program
// again: see init. It is started again after its death.
type verifier struct {
	original sent
	dir      string
	// here carries orders out in this process: there is no memory for another one.
	here    bool
	child   *engine.Child
	orders  *os.File
	replies *os.File
	encoder *gob.Encoder
	decoder *gob.Decoder
}

// sent is the original model's form, as it goes to a verifier.
type sent struct {
	Path      string
	Data      []byte
	Signature signature
}

func sentOf(f form) sent { return sent{f.path, f.data, f.signature} }

func (s sent) form() form {
	return form{path: s.Path, data: s.Data, signature: s.Signature, level: ort.GraphOptimizationLevelEnableAll}
}

// order says what a verifier does: it writes a form, if Write is true, or measures it. Format
// is "" for the original model.
type order struct {
	Original sent
	Dir      string
	Format   Format
	Write    bool
}

// reply is a verifier's answer.
type reply struct {
	Load, Run time.Duration
	Outputs   []tensor.Tensor
	Error     string
}

// attempt writes a form and measures it.
func (v *verifier) attempt(format Format) attempt {
	if err := v.write(format); err != nil {
		return attempt{err: err}
	}
	return v.measured(format)
}

// measured is measure with the error next to the result.
func (v *verifier) measured(format Format) attempt {
	m, err := v.measure(format)
	return attempt{m, err}
}

// compare compares a form's outputs with the original's, bit by bit: the form was saved from
// the original as the engine optimised it, so both run the same kernels on the same numbers.
// If the bits differ, and those of the original also differ between two processes (it draws
// random numbers), only the sizes count.
func (v *verifier) compare(reference, m measurement) error {
	if identical(reference.outputs, m.outputs) {
		return nil
	}
	again, err := v.measure("")
	if err != nil {
		return fmt.Errorf("the original model in another process: %w", err)
	}
	if identical(reference.outputs, again.outputs) {
		return differences(reference.outputs, m.outputs)
	}
	return sameSizes(reference.outputs, m.outputs)
}

// write has the child write a form of the model.
func (v *verifier) write(format Format) error {
	_, err := v.send(order{Format: format, Write: true})
	return err
}

// measure has the child measure a form of the model, "" for the original.
func (v *verifier) measure(format Format) (measurement, error) {
	return v.send(order{Format: format})
}

// send has the child carry out an order. The death of the child is an error, after a second
// try if it was killed: the engine does not do that, and memory may be short for a moment only.
func (v *verifier) send(o order) (measurement, error) {
	m, killed, err := v.try(o)
	if !killed {
		return m, err
	}
	if o.Write {
		if err := os.RemoveAll(filepath.Join(v.dir, string(o.Format))); err != nil {
			return measurement{}, err
		}
	}
	m, _, err = v.try(o)
	return m, err
}

// try is send without a second try. killed reports whether the child died by SIGKILL.
func (v *verifier) try(o order) (m measurement, killed bool, err error) {
	o.Original, o.Dir = v.original, v.dir
	if v.here {
		m, err = o.carryOut(v.original.form())
		return m, false, err
	}
	if v.child == nil {
		if err := v.start(); err != nil {
			return measurement{}, false, err
		}
	}
	var r reply
	if err = v.encoder.Encode(o); err == nil {
		err = v.decoder.Decode(&r)
	}
	if err != nil { // The child has closed its pipes: it has ended, or ends now.
		<-v.child.Exited()
		child := v.child
		err := v.close() // Afterwards its output is complete.
		return measurement{}, child.Killed(), errors.Join(fmt.Errorf("the process that ran it %s", child.Why()), err)
	}
	if r.Error != "" {
		return measurement{}, false, errors.New(r.Error)
	}
	return measurement{load: r.Load, run: r.Run, outputs: r.Outputs}, false, nil
}

func (v *verifier) start() error {
	theirOrders, orders, err := os.Pipe()
	if err != nil {
		return err
	}
	replies, theirReplies, err := os.Pipe()
	if err != nil {
		return errors.Join(err, theirOrders.Close(), orders.Close())
	}
	child, err := engine.StartChild(engine.ChildOptions{
		Argv:  []string{self},
		Env:   append(os.Environ(), verifierEnv+"="+library.path),
		Files: []*os.File{theirOrders, theirReplies},
		Log:   io.Discard,
	})
	if err := errors.Join(err, theirOrders.Close(), theirReplies.Close()); err != nil {
		return errors.Join(err, orders.Close(), replies.Close())
	}
	v.child, v.orders, v.replies = child, orders, replies
	v.encoder, v.decoder = gob.NewEncoder(orders), gob.NewDecoder(replies)
	return nil
}

// close ends the child.
func (v *verifier) close() error {
	if v.child == nil {
		return nil
	}
	err := errors.Join(v.child.End(0), v.orders.Close(), v.replies.Close())
	v.child = nil
	return err
}

// init turns a process with verifierEnv into a verifier. A subcommand would not do: programs
// of tests and of the lab prepare models, too.
func init() {
	if os.Getenv(verifierEnv) == "" {
		return
	}
	const ordersFD, repliesFD = 3, 4
	ended := make(chan error)
	// On the main thread, to which init is bound, C's allocator gives memory back after every
	// load, so that a load takes twice as long as in an instance.
	go func() { ended <- obey(os.NewFile(ordersFD, "orders"), os.NewFile(repliesFD, "replies")) }()
	if err := <-ended; err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// obey carries out orders until there are no more.
func obey(orders io.Reader, replies io.Writer) error {
	if err := Load(os.Getenv(verifierEnv)); err != nil {
		return err
	}
	decoder, encoder := gob.NewDecoder(orders), gob.NewEncoder(replies)
	for {
		var o order
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		m, err := o.carryOut(o.Original.form())
		r := reply{Load: m.load, Run: m.run, Outputs: m.outputs}
		if err != nil {
			r = reply{Error: err.Error()}
		}
		if err := encoder.Encode(r); err != nil {
			return err
		}
	}
}

func (o order) carryOut(original form) (measurement, error) {
	ordered(o)
	if o.Format == "" {
		return measure(original)
	}
	if o.Write {
		return measurement{}, writeFormat(original, o.Dir, o.Format)
	}
	written := Prepared{Dir: filepath.Join(o.Dir, string(o.Format)), Format: o.Format, signature: original.signature}
	return measure(written.form())
}

// identical reports whether two runs' outputs have the same bits.
func identical(a, b []tensor.Tensor) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !bytes.Equal(a[i].Data, b[i].Data) {
			return false
		}
	}
	return true
}

// sameSizes compares the sizes of two runs' outputs.
func sameSizes(want, got []tensor.Tensor) error {
	if len(got) != len(want) {
		return fmt.Errorf("it has %d outputs, but the original model has %d", len(got), len(want))
	}
	for i := range want {
		if len(got[i].Data) != len(want[i].Data) {
			return fmt.Errorf("output %q has %d bytes, but the original model's has %d",
				want[i].Name, len(got[i].Data), len(want[i].Data))
		}
	}
	return nil
}

// differences describes the first difference between two runs' outputs.
func differences(want, got []tensor.Tensor) error {
	if err := sameSizes(want, got); err != nil {
		return err
	}
	for i := range want {
		size := max(1, want[i].Type.Size()) // Strings have no fixed size.
		for at := 0; at+size <= len(want[i].Data); at += size {
			w, g := want[i].Data[at:at+size], got[i].Data[at:at+size]
			if bytes.Equal(w, g) {
				continue
			}
			if want[i].Type.Size() == 0 {
				return fmt.Errorf("output %q differs from the model's own at byte %d", want[i].Name, at)
			}
			return fmt.Errorf("output %q differs from the model's own: %g, not %g",
				want[i].Name, want[i].Type.Number(g), want[i].Type.Number(w))
		}
	}
	return nil
}
