package load

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/faas-infer/faas-infer/model/tensor"
)

// maxMetadata is the maximum size in bytes of an answer that Metadata reads.
const maxMetadata = 1 << 20

// ModelName guesses the model's name from a function's URL: the last element
// of its path without the namespace, "mnist" for
// http://127.0.0.1:8080/function/mnist.openfaas-fn.
func ModelName(functionURL string) (string, error) {
	u, err := url.Parse(functionURL)
	if err != nil {
		return "", err
	}
	name, _, _ := strings.Cut(path.Base(strings.TrimRight(u.Path, "/")), ".")
	if name == "" || name == "/" {
		return "", fmt.Errorf("%s does not end in a function's name", functionURL)
	}
	return name, nil
}

// Metadata returns the inputs of a function's model. It asks the function with the Open
// Inference Protocol's GET <function's URL>/v2/models/<model>.
func Metadata(ctx context.Context, client *http.Client, functionURL, model string) ([]tensor.Info, error) {
	at, err := url.JoinPath(functionURL, "v2", "models", model)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("asking for the model's inputs: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxMetadata))
	if err != nil {
		return nil, fmt.Errorf("asking for the model's inputs: GET %s: %w", at, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("asking for the model's inputs: GET %s answered %s: %.200s", at, response.Status, body)
	}
	var metadata struct {
		Inputs []tensor.Info `json:"inputs"`
	}
	if err := json.Unmarshal(body, &metadata); err != nil {
		return nil, fmt.Errorf("asking for the model's inputs: GET %s: %w", at, err)
	}
	if len(metadata.Inputs) == 0 {
		return nil, fmt.Errorf("GET %s names no inputs", at)
	}
	return metadata.Inputs, nil
}
