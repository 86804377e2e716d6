package dashboard

import (
	"embed"
	"fmt"
	"html/template"
	"io"
)

//go:embed templates
var files embed.FS

// renderer makes the HTML of the pages. The templates escape each text for its place, so names and messages of objects
// cannot change a page.
type renderer struct {
	pages         *template.Template
	script, style string
}

func newRenderer() (*renderer, error) {
	script, err := files.ReadFile("templates/live.js")
	if err != nil {
		return nil, fmt.Errorf("read the script: %w", err)
	}
	style, err := files.ReadFile("templates/style.css")
	if err != nil {
		return nil, fmt.Errorf("read the style: %w", err)
	}
	r := &renderer{script: string(script), style: string(style)}
	r.pages, err = template.New("").Funcs(template.FuncMap{
		"script":   func() template.JS { return template.JS(r.script) },
		"style":    func() template.CSS { return template.CSS(r.style) },
		"legend":   categoryNames,
		"withPool": func(machines []machineRowView, with bool) machineTable { return machineTable{machines, with} },
	}).ParseFS(files, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("parse the templates: %w", err)
	}
	return r, nil
}

// machineTable is a table of machines, with or without a column for their pools.
type machineTable struct {
	Machines []machineRowView
	WithPool bool
}

// render writes a page, or only its main part.
func (r *renderer) render(out io.Writer, v view, onlyMain bool) error {
	name := "page"
	if onlyMain {
		name = "main"
	}
	return r.pages.ExecuteTemplate(out, name, v)
}
