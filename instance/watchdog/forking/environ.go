package forking

import (
	"net/http"
	"strconv"
	"strings"
)

// requestEnv tells a program about the request as the classic watchdog does.
func requestEnv(r *http.Request) []string {
	env := make([]string, 0, len(r.Header)+8)
	for name, values := range r.Header {
		// Many programs would take Http_Proxy for the proxy to use, and
		// anybody could send it.
		if name == "Proxy" {
			continue
		}
		env = append(env, "Http_"+strings.ReplaceAll(name, "-", "_")+"="+strings.Join(values, ", "))
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
