// Which colours suit an array, by what its attributes say: CF standard names, long names and units.

const RULES = [
  [/anomal|difference|increment|\bbias\b|tendency|residual/, { scale: "balance", centre: 0 }],
  [/vorticity|divergence/, { scale: "curl", centre: 0 }],
  [/(^|[_ ])(eastward|northward|upward|downward|x|y|u|v|radial|meridional|zonal|vertical)[_ ](\w+[_ ])*(velocity|wind|stress|momentum|transport|current)/, { scale: "balance", centre: 0 }],
  [/doppler|lagrangian_tendency/, { scale: "balance", centre: 0 }],
  [/direction|azimuth|(^|_)phase($|_)/, { scale: "phase", cycle: true }],
  [/precipitation|rainfall|snowfall|rain_?rate|runoff|lwe_/, { scale: "rain", from: 0 }],
  [/reflectiv/, { scale: "turbo" }],
  [/sea_?ice|ice_area|ice_conc/, { scale: "ice" }],
  [/brightness_temperature/, { scale: "thermal" }],
  [/cloud/, { scale: "gray" }],
  [/salinity/, { scale: "haline" }],
  [/chlorophyll/, { scale: "algae", norm: "log" }],
  [/oxygen/, { scale: "matter" }],
  [/temperature/, { scale: "thermal" }],
  [/(^|[_ ])speed/, { scale: "speed", from: 0 }],
  [/humidity|water_vapo|moisture|cloud_water/, { scale: "GnBu" }],
  [/ndvi|evi\b|vegetation|leaf_area|biomass/, { scale: "YlGn" }],
  [/altitude|elevation|topograph|bathymetr|orograph/, { scale: "topo", centre: 0, onlyAround: true }],
  [/(^|_)depth/, { scale: "deep" }],
  [/radiation|irradiance|shortwave/, { scale: "solar" }],
  [/density|sigma_theta/, { scale: "dense" }],
  [/radiance|counts|brightness/, { scale: "gray" }],
];
const BY_UNITS = [
  [/^dbz$/i, { scale: "turbo" }],
  [/^(psu|1e-3)$/i, { scale: "haline" }],
  [/^(k|kelvin|deg_?c|celsius|degrees?[_ ]celsius|°c)$/i, { scale: "thermal" }],
  [/^(mm|mm ?(\/ ?|)(h|hr|day|d)(-1|\*\*-1)?|kg m-2 s-1)$/i, { scale: "rain", from: 0 }],
];

// `scale`, and where it applies `centre` or `from` (what limits hold on to), `cycle`, `norm`.
export function suited({ attributes, name, isCount, range }) {
  const words = ["standard_name", "long_name"].map((key) => attributes[key]).filter((each) => typeof each === "string");
  const told = [...words, name].map((each) => each.toLowerCase());
  const units = typeof attributes.units === "string" ? attributes.units.trim() : "";
  const rule =
    RULES.find(([pattern]) => told.some((each) => pattern.test(each))) ?? BY_UNITS.find(([pattern]) => units && pattern.test(units));
  const found = rule?.[1] ?? { scale: isCount && !units ? "gray" : "viridis" };
  const isAround = range && range[0] < 0 && range[1] > 0;
  return found.onlyAround && !isAround ? { scale: "viridis" } : found;
}
