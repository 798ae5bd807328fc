// Posts files by Go's own client, each once with a length and once as a stream, and prints the
// statuses. Arguments: URL, key, content encoding ("-": none) and file of each request.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func main() {
	words := os.Args[1:]
	for at := 0; at < len(words); at += 4 {
		body := must(os.ReadFile(words[at+3]))
		forms := []io.Reader{bytes.NewReader(body), io.NopCloser(bytes.NewReader(body))}
		for _, form := range forms {
			request := must(http.NewRequest("POST", words[at], form))
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("X-Service-Project-Key", words[at+1])
			if words[at+2] != "-" {
				request.Header.Set("Content-Encoding", words[at+2])
			}
			response := must(http.DefaultClient.Do(request))
			must(io.ReadAll(response.Body))
			response.Body.Close()
			fmt.Println(response.StatusCode)
		}
	}
}
