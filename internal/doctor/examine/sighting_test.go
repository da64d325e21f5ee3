package examine

import "github.com/torch-mcast/torch-mcast/internal/doctor"

// sighting is what was seen of a patient of a test, an object a line of the file.
type sighting struct {
	Test  string
	Facts doctor.Facts
}

const sightings = "testdata/namespaces.ndjson.gz"
