// Command gen writes the SIMD kernels of package reduce: one assembly file and
// one file of Go declarations a level, and the tables that dispatch to them;
// and the kernels that its benchmark measures the machine with.
//
// It is a module of its own, so that avo is no dependency of torch-mcast. Run
// it with "go generate ./internal/reduce"; nothing may differ afterwards.
package main

import (
	"bytes"
	"fmt"
	"go/format"
	"log"
	"os"
	"path/filepath"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"
)

// directory is the folder of package reduce, seen from here.
const directory = ".."

// generator is what the files say that they come from.
const generator = "internal/reduce/gen"

func main() {
	log.SetFlags(0)
	log.SetPrefix("gen: ")
	var tables bytes.Buffer
	config := printer.Config{Name: generator, Pkg: "reduce"}
	fmt.Fprintf(&tables, "// %s\n\npackage reduce\n", config.GeneratedWarning())
	for _, l := range []level{avx2, avx512} {
		if err := write(l, config, &tables); err != nil {
			log.Fatal(err)
		}
	}
	source, err := format.Source(tables.Bytes())
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(directory, "tables_amd64.go"), source, 0o644); err != nil {
		log.Fatal(err)
	}
	limits := build.NewContext()
	for _, l := range []level{avx2, avx512} {
		emitLimits(limits, l)
	}
	if err := print(limits, printer.Config{Name: generator, Pkg: "main"}, "bench/limit_amd64"); err != nil {
		log.Fatal(err)
	}
}

// write generates the kernels of one level and appends their tables.
func write(l level, config printer.Config, tables *bytes.Buffer) error {
	ctx := build.NewContext()
	made := map[string]bool{}
	for _, streaming := range []bool{false, true} {
		verb, plural := "fold", "Kernels"
		if streaming {
			verb, plural = "stream", "Streams"
		}
		fmt.Fprintf(tables, "\nvar %s%s = table{\n", l.file, plural)
		for _, f := range elements(l) {
			fmt.Fprintf(tables, "position%s: {", f.name)
			for _, o := range f.ops {
				if streaming && !o.isSum() {
					continue
				}
				name := verb + o.name + o.lane + l.name
				fmt.Fprintf(tables, "%s: %s,", o.name, name)
				if !made[name] { // signed and unsigned integers share most kernels
					made[name] = true
					emit(ctx, l, f, o, name, streaming)
				}
			}
			fmt.Fprintf(tables, "},\n")
		}
		fmt.Fprintf(tables, "}\n")
	}
	fmt.Fprintf(tables, "\nvar %sSteps = [numSteps]table{\n", l.file)
	for _, s := range steps {
		fmt.Fprintf(tables, "%s: {\n", s.name)
		for _, c := range conversions {
			fmt.Fprintf(tables, "position%s: {", c.name)
			for _, o := range floatOps(c.name) {
				same := s.same(o.name, c)
				if same == "" {
					continue
				}
				fmt.Fprintf(tables, "%s: %s%s%s%s,", o.name, s.name, same, c.name, l.name)
				if same == o.name {
					emitStep(ctx, l, s, c, o, s.name+same+c.name+l.name)
				}
			}
			fmt.Fprintf(tables, "},\n")
		}
		fmt.Fprintf(tables, "},\n")
	}
	fmt.Fprintf(tables, "}\n")
	return print(ctx, config, l.file+"_amd64")
}

// print writes the assembly and the declarations of ctx to two files of that name.
func print(ctx *build.Context, config printer.Config, name string) error {
	file, err := ctx.Result()
	if err != nil {
		build.LogError(log.Default(), err, 5)
		return err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return err
	}
	for suffix, p := range map[string]printer.Printer{"s": printer.NewGoAsm(config), "go": printer.NewStubs(config)} {
		text, err := p.Print(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(directory, name+"."+suffix), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
