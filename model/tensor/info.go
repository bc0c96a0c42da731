package tensor

import "fmt"

// String is the tensor for messages, such as {x FP32 [-1 2]}.
func (i Info) String() string {
	text := fmt.Sprintf("{%s %s %v", i.Name, i.Type, i.Shape)
	if i.Edge != nil {
		text += fmt.Sprintf(" of %v", *i.Edge)
	}
	return text + "}"
}
