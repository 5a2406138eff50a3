// Times of the CF conventions: numbers since a date, in any of their calendars.

const SECONDS = { nanosecond: 1e-9, nanosec: 1e-9, ns: 1e-9, microsecond: 1e-6, microsec: 1e-6, us: 1e-6, millisecond: 1e-3, millisec: 1e-3, msec: 1e-3, ms: 1e-3, second: 1, sec: 1, s: 1, minute: 60, min: 60, hour: 3600, hr: 3600, h: 3600, day: 86400, d: 86400, week: 604800 };
const SINCE = /^([a-z]+?)s? since ([+-]?\d{1,6})-(\d{1,2})(?:-(\d{1,2}))?(?:[T ]+(\d{1,2})(?::(\d{1,2})(?::(\d{1,2}(?:\.\d*)?))?)?)?\s*(?:Z|UTC|GMT|([+-])(\d{1,2}):?(\d{2})?)?$/i;
const FIRST_OF_MONTH = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const MOST_YEARS = 1e6;
const GREGORIAN_BEGINS = 2299161; // 15 October 1582, as Julian day number

// Days of a date since some day, and back, for each calendar. Source of the Julian day numbers:
// E. G. Richards, Explanatory Supplement to the Astronomical Almanac, 15.11.
function julianDay(year, month, day, isGregorian) {
  const a = Math.floor((14 - month) / 12);
  const y = year + 4800 - a;
  const first = day + Math.floor((153 * (month + 12 * a - 3) + 2) / 5) + 365 * y + Math.floor(y / 4);
  return isGregorian ? first - Math.floor(y / 100) + Math.floor(y / 400) - 32045 : first - 32083;
}

function dateOf(number, isGregorian) {
  const b = isGregorian ? Math.floor((4 * (number + 32044) + 3) / 146097) : 0;
  const c = isGregorian ? number + 32044 - Math.floor((146097 * b) / 4) : number + 32082;
  const d = Math.floor((4 * c + 3) / 1461);
  const e = c - Math.floor((1461 * d) / 4);
  const m = Math.floor((5 * e + 2) / 153);
  return [100 * b + d - 4800 + Math.floor(m / 10), m + 3 - 12 * Math.floor(m / 10), e - Math.floor((153 * m + 2) / 5) + 1];
}

const MIXED = withoutYearZero({
  days(year, month, day) {
    const number = julianDay(year, month, day, true);
    return number >= GREGORIAN_BEGINS ? number : julianDay(year, month, day, false);
  },
  date: (number) => dateOf(number, number >= GREGORIAN_BEGINS),
});

function ofOneKind(isGregorian) {
  return { days: (...date) => julianDay(...date, isGregorian), date: (number) => dateOf(number, isGregorian) };
}

// Of calendars that have no year zero: the year 1 follows the year -1.
function withoutYearZero({ days, date }) {
  return {
    hasNoYearZero: true,
    days: (year, ...rest) => days(year < 0 ? year + 1 : year, ...rest),
    date(number) {
      const [year, ...rest] = date(number);
      return [year < 1 ? year - 1 : year, ...rest];
    },
  };
}

// Years that are all as long; `leap` is how many days follow February's 28th.
function ofEqualYears(leap) {
  const first = FIRST_OF_MONTH.map((days, month) => days + (month > 1 ? leap : 0));
  return {
    days: (year, month, day) => year * (365 + leap) + first[month - 1] + day - 1,
    date(number) {
      const year = Math.floor(number / (365 + leap));
      const inYear = number - year * (365 + leap);
      const month = first.findLastIndex((days) => days <= inYear);
      return [year, month + 1, inYear - first[month] + 1];
    },
  };
}

const OF_360_DAYS = {
  days: (year, month, day) => year * 360 + (month - 1) * 30 + day - 1,
  date: (number) => [Math.floor(number / 360), Math.floor((((number % 360) + 360) % 360) / 30) + 1, (((number % 30) + 30) % 30) + 1],
};

const CALENDARS = {
  standard: MIXED, gregorian: MIXED, proleptic_gregorian: ofOneKind(true), julian: withoutYearZero(ofOneKind(false)),
  noleap: ofEqualYears(0), "365_day": ofEqualYears(0), all_leap: ofEqualYears(1), "366_day": ofEqualYears(1), "360_day": OF_360_DAYS,
};

const two = (number) => String(number).padStart(2, "0");
const four = (year) => (year < 0 ? "-" : "") + String(Math.abs(year)).padStart(4, "0");

export class TimeAxis {
  // Null unless the units are times since a date, of a calendar that is known.
  static of(units, calendar = "standard") {
    const found = SINCE.exec(String(units).trim());
    const seconds = found && (SECONDS[found[1].toLowerCase()] ?? SECONDS[`${found[1].toLowerCase()}s`]);
    const days = CALENDARS[String(calendar).toLowerCase()];
    if (days?.hasNoYearZero && Number(found?.[2]) === 0) return null;
    return seconds && days ? new TimeAxis(seconds, days, found) : null;
  }

  constructor(seconds, calendar, [, , year, month, day = 1, hour = 0, minute = 0, second = 0, sign, hours = 0, minutes = 0]) {
    this.seconds = seconds;
    this.calendar = calendar;
    const offset = sign ? Number(`${sign}1`) * (Number(hours) * 3600 + Number(minutes) * 60) : 0;
    this.start = calendar.days(Number(year), Number(month), Number(day));
    this.startSeconds = Number(hour) * 3600 + Number(minute) * 60 + Number(second) - offset;
  }

  // Year, month, day, and seconds of the day.
  parts(value) {
    const all = this.startSeconds + Math.round(value * this.seconds * 1000) / 1000;
    const days = Math.floor(all / 86400);
    return [...this.calendar.date(this.start + days), all - days * 86400];
  }

  // The number of a date, as the units count.
  numberOf(year, month, day, seconds = 0) {
    return ((this.calendar.days(year, month, day) - this.start) * 86400 + seconds - this.startSeconds) / this.seconds;
  }

  words(value) {
    if (!Number.isFinite(value)) return "no time";
    const [year, month, day, seconds] = this.parts(value);
    const date = `${four(year)}-${two(month)}-${two(day)}`;
    return seconds ? `${date} ${clock(seconds)}` : date;
  }

  // Round times between two numbers, about so many, each with its words.
  ticks(low, high, n) {
    if (!(Math.abs(this.parts(low)[0]) < MOST_YEARS && Math.abs(this.parts(high)[0]) < MOST_YEARS)) return [];
    const span = (high - low) * this.seconds;
    const step = STEPS.find(([length, each]) => span / (length * each) <= n) ?? yearsFor(span, n);
    return step[2](this, low, high, step[1]);
  }
}

function clock(seconds) {
  const whole = Math.floor(seconds);
  const time = `${two(Math.floor(whole / 3600))}:${two(Math.floor(whole / 60) % 60)}`;
  const part = seconds - whole > 5e-4 ? (seconds - whole).toFixed(3).slice(1) : "";
  return whole % 60 || part ? `${time}:${two(whole % 60)}${part}` : time;
}

function ofDays(axis, low, high, step) {
  const found = [];
  const seconds = step < 1 ? step * 86400 : 86400;
  let [year, month, day] = axis.parts(low);
  for (let number = axis.calendar.days(year, month, day); axis.numberOf(...axis.calendar.date(number)) <= high; number++) {
    [year, month, day] = axis.calendar.date(number);
    if (step > 1 && ((day - 1) % step || (step > 2 && day > 30 - step / 2))) continue;
    for (let at = 0; at < 86400; at += seconds) {
      const value = axis.numberOf(year, month, day, at);
      if (value >= low && value <= high) found.push([value, step < 1 ? [`${two(month)}-${two(day)}`, clock(at)][Number(at > 0)] : axis.words(value)]);
    }
  }
  return found;
}

function ofMonths(axis, low, high, step) {
  const found = [];
  let [year, month] = axis.parts(low);
  for (; axis.numberOf(year, month, 1) <= high; [year, month] = month === 12 ? [year + 1, 1] : [year, month + 1]) {
    const value = axis.numberOf(year, month, 1);
    if (value >= low && (month - 1) % step === 0) found.push([value, `${four(year)}-${two(month)}`]);
  }
  return found;
}

function ofYears(axis, low, high, step) {
  const found = [];
  const [first] = axis.parts(low);
  for (let year = Math.ceil(first / step) * step; axis.numberOf(year, 1, 1) <= high; year += step) {
    const value = axis.numberOf(year, 1, 1);
    if (value >= low) found.push([value, four(year)]);
  }
  return found;
}

const DAY = 86400;
const STEPS = [
  ...[1 / 86400, 5 / 86400, 15 / 86400, 30 / 86400, 1 / 1440, 5 / 1440, 15 / 1440, 0.5 / 24, 1 / 24, 3 / 24, 6 / 24, 12 / 24, 1, 2, 5, 10].map((each) => [DAY, each, ofDays]),
  ...[1, 3, 6].map((each) => [30.4 * DAY, each, ofMonths]),
];

function yearsFor(span, n) {
  const least = span / (365.2 * DAY) / n;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [DAY, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= least), ofYears];
}
