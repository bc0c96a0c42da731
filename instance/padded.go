package instance

import (
	"context"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/model/ragged"
	"github.com/faas-infer/faas-infer/model/tensor"
)

// paddedEngine is an Engine that may have a model whose rows of different lengths run together. Padding says how, nil for a
// model whose rows must have one length.
type paddedEngine interface {
	Engine
	Padding() *ragged.Padding
}

// tensorRows are rows of tensors of different lengths, with the answers that are known.
type tensorRows struct {
	padding *ragged.Padding
	server  *Server
	members []member
	answers [][][]tensor.Tensor
}

// runTensors runs members that have tensors: those whose rows may be padded together, the others by their shapes.
func (s *Server) runTensors(ctx context.Context, members []member, responses []frame.Response, spent *Spent) {
	var alike []member
	kind := tensorRows{padding: s.padding, server: s}
	var rows []batchRow
	for _, m := range members {
		length := 0
		if s.padding != nil {
			length = s.padding.Length(m.Inputs)
		}
		if length == 0 {
			alike = append(alike, m)
			continue
		}
		for at := range m.Rows {
			rows = append(rows, batchRow{len(kind.members), at, length})
		}
		kind.members, kind.answers = append(kind.members, m), append(kind.answers, make([][]tensor.Tensor, m.Rows))
	}
	for _, group := range s.group(alike) {
		s.runGroup(ctx, group, responses, spent)
	}
	if len(rows) > 0 {
		s.runRows(ctx, kind.members, rows, kind, responses, spent)
	}
}

func (t tensorRows) join(rows []batchRow, buffer func(size int) []byte) (inputs []tensor.Tensor, tokens int) {
	own := make([]ragged.Row, len(rows))
	for i, r := range rows {
		own[i] = ragged.Row{Inputs: t.members[r.of].Inputs, At: r.at}
		tokens += r.length
	}
	return ragged.Join(own, buffer), tokens
}

func (t tensorRows) keep(rows []batchRow, outputs []tensor.Tensor) error {
	for i, r := range rows {
		answer, err := t.padding.Row(outputs, i, r.length)
		if err != nil {
			return err
		}
		t.answers[r.of][r.at] = answer
	}
	return nil
}

func (t tensorRows) respond(of int) frame.Response {
	var whole []tensor.Tensor
	for _, row := range t.answers[of] {
		whole = ragged.Extend(whole, row)
	}
	t.answers[of] = nil
	return t.server.respond(t.members[of], whole)
}
