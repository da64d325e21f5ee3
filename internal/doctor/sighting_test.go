package doctor

// sighting is what was seen of a patient of a test, an object a line of the file.
type sighting struct {
	Test  string
	Facts Facts
}

const sightings = "testdata/namespaces.ndjson.gz"
