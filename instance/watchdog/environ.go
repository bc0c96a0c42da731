package watchdog

import (
	"net/http"
	"strconv"
	"strings"
)

// requestEnv returns the environment variables that describe a request, as in the classic
// watchdog.
func requestEnv(r *http.Request) []string {
	env := make([]string, 0, len(r.Header)+8)
	for name, values := range r.Header {
		name = strings.ReplaceAll(name, "-", "_")
		if !isReserved(name) {
			env = append(env, "Http_"+name+"="+strings.Join(values, ", "))
		}
	}
	path := r.URL.Path
	if strings.ContainsRune(path, 0) {
		path = r.URL.EscapedPath()
	}
	length := strconv.FormatInt(r.ContentLength, 10)
	env = append(env, "Http_Method="+r.Method, "Http_Path="+path, "Http_Host="+r.Host,
		"Http_Content_Length="+length, "Http_ContentLength="+length)
	if r.URL.RawQuery != "" {
		env = append(env, "Http_Query="+r.URL.RawQuery)
	}
	if len(r.TransferEncoding) > 0 {
		env = append(env, "Http_Transfer_Encoding="+r.TransferEncoding[0])
	}
	return env
}

// isReserved reports whether a header of that name must not reach the program. A client
// could send it to forge a variable of the request itself, or a proxy setting.
func isReserved(name string) bool {
	switch name {
	case "Method", "Path", "Host", "Query", "Content_Length", "ContentLength", "Contentlength", "Transfer_Encoding", "Proxy":
		return true
	}
	return false
}
