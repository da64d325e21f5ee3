package watch

import (
	"bytes"
	"html/template"
	"net/http"
	"strings"
)

// pageRow is a group as the page for people shows it.
type pageRow struct {
	Group, Run, Fabric, Interface string
	Here, Size                    int
	State                         string // troubles, a line each; else the activity
	Trouble                       bool
}

var page = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="5">
<title>mcast metrics</title>
<style>
body { font-family: sans-serif; margin: 2em }
th, td { text-align: left; vertical-align: top; padding: .2em 1em .2em 0; white-space: pre-line }
.trouble { font-weight: bold }
</style>
<h1>torch-mcast on this host</h1>
<p>What the ranks of this host do, from <code>mcast metrics</code>. The page loads itself anew every 5 s.</p>
<ul>
<li><a href="/metrics">/metrics</a>: counters and histograms, for Prometheus</li>
<li><a href="/ranks">/ranks</a>: the same as JSON, which <code>mcast explain --hosts</code> reads</li>
</ul>
{{if .Rows}}<table>
<tr><th>group<th>run<th>ranks here<th>of<th>fabric<th>interface<th>state
{{range .Rows}}<tr><td>{{.Group}}<td>{{.Run}}<td>{{.Here}}<td>{{.Size}}<td>{{.Fabric}}<td>{{.Interface}}<td{{if .Trouble}} class="trouble"{{end}}>{{.State}}
{{end}}</table>
{{else}}<p>No rank runs here, or none publishes (<code>MCAST_METRICS</code>).</p>
{{end}}{{range .Errors}}<p class="trouble">does not answer: {{.}}</p>
{{end}}</html>
`))

// Page is for people: where the rest is, and the groups of this host, those with trouble first.
func Page(look func() ([]Rank, []error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		ranks, errs := look()
		shown := struct {
			Rows   []pageRow
			Errors []error
		}{Errors: errs}
		for _, g := range groupsOf(Between(nil, ranks)) {
			first := &g[0]
			row := pageRow{
				Group: first.Group, Run: first.Run, Fabric: first.Fabric, Interface: first.Interface, Here: len(g),
				Size: first.Size,
			}
			switch urgency(g) {
			case 2:
				row.State, row.Trouble = strings.Join(troubles(g), "\n"), true
			case 1:
				row.State = "at work"
			default:
				row.State = "no operation in flight"
			}
			shown.Rows = append(shown.Rows, row)
		}
		var text bytes.Buffer
		if err := page.Execute(&text, shown); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(text.Bytes()) // the client may be gone
	})
}
