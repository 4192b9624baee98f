// Checks objects of Kubernetes against its schemas: node kubernetes_schemas.mjs PACKAGES < OBJECTS
// PACKAGES is a node_modules with kubernetes-models; OBJECTS is a list of objects as JSON. Prints a
// line for each mistake; exit status 1 when there are any.
import {readFileSync} from "node:fs";
import {pathToFileURL} from "node:url";

const packages = process.argv[2];
let mistakes = 0;
for (const object of JSON.parse(readFileSync(0, "utf8"))) {
  const [group, version] = object.apiVersion.includes("/") ?
    object.apiVersion.split("/") : ["", object.apiVersion];
  const file = `${packages}/kubernetes-models/${group && group + "/"}${version}/${object.kind}.js`;
  const {[object.kind]: Model} = await import(pathToFileURL(file));
  try {
    new Model(object).validate();
  } catch (error) {
    ++mistakes;
    console.log(`${object.kind} ${object.metadata.name}: ${error.message}`);
  }
}
process.exit(mistakes ? 1 : 0);
