//! Latitudes and longitudes of the points of projected grids.
//!
//! ```text
//! section 3, from byte 14: shape of the earth, its radius or axes, columns, rows, first latitude
//! and longitude, flags, latitude and longitude of the projection, spacing, flags, parallels
//! ```
//!
//! kerchunk stores the coordinates of regular grids in the references, and refers to the message
//! for those of projected grids. ecCodes computes them, so each expression here has the operations
//! of ecCodes in the same order. Then they are equal, if both use the same mathematical functions
//! of the C library. Rows follow the message, whatever its scanning mode.

use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use super::message::{Message, Section};
use super::scale::Powers;
use zarrfs_base::error::{Error, Result};

const TO_DEGREES: f64 = 57.295_779_513_082_32;
const TO_RADIANS: f64 = 0.017_453_292_519_943_295;

/// Angles or lengths below this count as 0.
const TINY: f64 = 1.0e-10;

/// The coordinate of points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coordinate {
    Latitude,
    Longitude,
}

/// A point in degrees.
#[derive(Debug, Clone, Copy)]
struct GridPoint {
    latitude: f64,
    longitude: f64,
}

/// The shape of the earth, in metres.
#[derive(Debug, Clone, Copy)]
enum Earth {
    Sphere { radius: f64 },
    Spheroid { minor: f64, major: f64 },
}

/// The part that both templates share. Angles are in radians.
#[derive(Debug)]
struct GribGrid {
    earth: Earth,
    columns: u32,
    rows: u32,
    first_latitude: f64,
    first_longitude: f64,
    /// The latitude at which the spacing is true.
    latitude: f64,
    /// The meridian that is parallel to the columns.
    longitude: f64,
    /// Metres from column to column.
    dx: f64,
    /// Metres from row to row.
    dy: f64,
}

/// Returns a coordinate of each of the `count` points of a message.
pub(super) fn coordinates(
    message: &Message<'_>,
    coordinate: Coordinate,
    count: usize,
) -> Result<Vec<f64>> {
    let section = message.grid;
    let template = section.u16(12)?;
    let unsupported = || {
        Error::unsupported(format!(
            "grib: zarrfs does not compute the points of this grid, which has template 3.{template}"
        ))
    };
    if !matches!(template, 20 | 30) {
        return Err(unsupported());
    }
    let grid = GribGrid::parse(section)?.ok_or_else(unsupported)?;
    let point_count = u64::from(grid.columns).saturating_mul(u64::from(grid.rows));
    if usize::try_from(point_count) != Ok(count) {
        return Err(Error::corrupt(format!(
            "grib: the grid has {} x {} points, the chunk needs {count}",
            grid.columns, grid.rows
        )));
    }
    let picked = |place: GridPoint| match coordinate {
        Coordinate::Latitude => place.latitude,
        Coordinate::Longitude => place.longitude,
    };
    let places = match (template, grid.earth) {
        (20, Earth::Sphere { radius }) => Some(grid.polar(radius, picked)),
        (20, Earth::Spheroid { .. }) => None,
        (_, Earth::Sphere { radius }) => grid.conic(&Parallels::parse(section)?, radius, picked),
        (_, Earth::Spheroid { minor, major }) => {
            grid.conic_spheroid(&Parallels::parse(section)?, minor, major, picked)
        }
    };
    places.ok_or_else(unsupported)
}

/// The parallels at which a cone cuts the earth, in radians.
#[derive(Debug)]
struct Parallels {
    first: f64,
    second: f64,
}

impl Parallels {
    fn parse(section: Section<'_>) -> Result<Self> {
        Ok(Self { first: latitude(section, 65)?, second: latitude(section, 69)? })
    }
}

/// Returns the angle with a sign at `offset` in radians.
fn latitude(section: Section<'_>, offset: usize) -> Result<f64> {
    Ok(f64::from(section.i32(offset)?) / 1e6 * TO_RADIANS)
}

/// Returns the angle without a sign at `offset` in radians.
fn longitude(section: Section<'_>, offset: usize) -> Result<f64> {
    Ok(f64::from(section.u32(offset)?) / 1e6 * TO_RADIANS)
}

impl Earth {
    /// Returns the shape that section 3 names, `None` if it is not known.
    fn parse(section: Section<'_>) -> Result<Option<Self>> {
        let scaled = |offset: usize| -> Result<f64> {
            let exponent = i32::from(section.u8(offset)? & 0x7f);
            let is_negative = section.u8(offset)? > 0x7f;
            let power = Powers::Repeated;
            let value = f64::from(section.u32(offset.saturating_add(1))?);
            Ok(power.scaled(value, if is_negative { exponent } else { -exponent }))
        };
        let sphere = |radius| Some(Self::Sphere { radius });
        let spheroid = |major, minor| Some(Self::Spheroid { minor, major });
        Ok(match section.u8(14)? {
            0 => sphere(6_367_470.0),
            1 => sphere(scaled(15)?),
            2 => spheroid(6_378_160.0, 6_356_775.0),
            3 => spheroid(scaled(20)? * 1000.0, scaled(25)? * 1000.0),
            4 | 5 => spheroid(6_378_137.0, 6_356_752.314),
            6 => sphere(6_371_229.0),
            7 => spheroid(scaled(20)?, scaled(25)?),
            8 => sphere(6_371_200.0),
            9 => spheroid(6_377_563.396, 6_356_256.909),
            _ => None,
        })
    }
}

impl GribGrid {
    fn parse(section: Section<'_>) -> Result<Option<Self>> {
        let Some(earth) = Earth::parse(section)? else { return Ok(None) };
        let is_polar = section.u16(12)? == 20;
        Ok(Some(Self {
            earth,
            columns: section.u32(30)?,
            rows: section.u32(34)?,
            first_latitude: latitude(section, 38)?,
            first_longitude: longitude(section, 42)?,
            latitude: latitude(section, 47)?,
            longitude: if is_polar { latitude(section, 51)? } else { longitude(section, 51)? },
            dx: f64::from(section.u32(55)?) / 1000.0,
            dy: f64::from(section.u32(59)?) / 1000.0,
        }))
    }

    /// Calls `place` with the number of each column and row.
    fn map(
        &self,
        mut place: impl FnMut(u32, u32) -> Option<GridPoint>,
        picked: impl Fn(GridPoint) -> f64,
    ) -> Option<Vec<f64>> {
        let points =
            (0..self.rows).flat_map(|row| (0..self.columns).map(move |column| (column, row)));
        points.map(|(column, row)| place(column, row).map(&picked)).collect()
    }

    /// Lambert's conic projection of a sphere.
    fn conic(
        &self,
        parallels: &Parallels,
        radius: f64,
        picked: impl Fn(GridPoint) -> f64,
    ) -> Option<Vec<f64>> {
        let Parallels { first, second } = *parallels;
        let half = |latitude: f64| (FRAC_PI_4 + latitude / 2.0).tan();
        let n = if (first - second).abs() < 1e-9 {
            first.sin()
        } else {
            (first.cos() / second.cos()).ln() / (half(second) / half(first)).ln()
        };
        let f = (first.cos() * half(first).powf(n)) / n;
        let rho = radius * f * half(self.first_latitude).powf(-n);
        let bare = f * half(self.latitude).powf(-n);
        let origin = radius * bare;
        let angle = n * within_half_turn(self.first_longitude - self.longitude);
        let x0 = rho * angle.sin();
        let y0 = origin - rho * angle.cos();
        let place = |column: u32, row: u32| {
            let mut x = (x0 + f64::from(column) * self.dx) / radius;
            let mut y = bare - (y0 + f64::from(row) * self.dy) / radius;
            let mut rho = x.hypot(y);
            if rho == 0.0 {
                let pole = if n > 0.0 { FRAC_PI_2 } else { -FRAC_PI_2 };
                return Some(GridPoint { latitude: pole * TO_DEGREES, longitude: 0.0 });
            }
            if n < 0.0 {
                (rho, x, y) = (-rho, -x, -y);
            }
            let latitude = 2.0 * (f / rho).powf(1.0 / n).atan() - FRAC_PI_2;
            let longitude = (x.atan2(y) / n + self.longitude) * TO_DEGREES;
            Some(GridPoint { latitude: latitude * TO_DEGREES, longitude: normal(longitude)? })
        };
        if first + second == 0.0 { None } else { self.map(place, picked) }
    }

    /// Lambert's conic projection of a spheroid.
    fn conic_spheroid(
        &self,
        parallels: &Parallels,
        minor: f64,
        major: f64,
        picked: impl Fn(GridPoint) -> f64,
    ) -> Option<Vec<f64>> {
        let ratio = minor / major;
        let e = (1.0 - ratio * ratio).sqrt();
        let Parallels { first, second } = *parallels;
        let m = |latitude: f64| {
            let con = e * latitude.sin();
            latitude.cos() / (1.0 - con * con).sqrt()
        };
        let t = |latitude: f64| {
            let con = e * latitude.sin();
            let power = ((1.0 - con) / (1.0 + con)).powf(0.5 * e);
            (0.5 * (FRAC_PI_2 - latitude)).tan() / power
        };
        let n = if (first - second).abs() > TINY {
            (m(first) / m(second)).ln() / (t(first) / t(second)).ln()
        } else {
            first.sin()
        };
        let f = m(first) / (n * t(first).powf(n));
        let origin = major * f * t(self.latitude).powf(n);
        if (self.first_latitude.abs() - FRAC_PI_2).abs() <= TINY || first + second == 0.0 {
            return None;
        }
        let rho = major * f * t(self.first_latitude).powf(n);
        let theta = n * within_half_turn(self.first_longitude - self.longitude);
        let (x0, y0) = (-(rho * theta.sin()), -(origin - rho * theta.cos()));
        let place = |column: u32, row: u32| {
            let x = f64::from(column) * self.dx - x0;
            let y = origin - f64::from(row) * self.dy + y0;
            let sign = if n <= 0.0 { -1.0 } else { 1.0 };
            let rho = sign * (x * x + y * y).sqrt();
            let theta = if rho == 0.0 { 0.0 } else { (sign * x).atan2(sign * y) };
            let latitude = if rho != 0.0 || n > 0.0 {
                spheroid_latitude(e, (rho / (major * f)).powf(1.0 / n))?
            } else {
                -FRAC_PI_2
            };
            let longitude = within_half_turn(theta / n + self.longitude);
            let longitude = normal(longitude * TO_DEGREES)?;
            Some(GridPoint { latitude: latitude * TO_DEGREES, longitude })
        };
        self.map(place, picked)
    }

    /// The stereographic projection of a sphere from a pole.
    fn polar(&self, radius: f64, picked: impl Fn(GridPoint) -> f64) -> Vec<f64> {
        let sign = if self.latitude < 0.0 { -1.0 } else { 1.0 };
        let central = sign * self.latitude;
        let is_secant = (self.latitude.abs() - FRAC_PI_2).abs() > TINY;
        let (m, t) = (central.cos(), (0.5 * (FRAC_PI_2 - central)).tan());
        let angle = sign * (self.first_longitude - self.longitude);
        let first = (0.5 * (FRAC_PI_2 - sign * self.first_latitude)).tan();
        let height = if is_secant { radius * m * first / t } else { 2.0 * radius * first };
        let (x0, y0) = (-(sign * height * angle.sin()), -(-sign * height * angle.cos()));
        // Rows and columns are found by adding the spacing again and again.
        let steps = |step: f64, count: u32| {
            let mut sum = 0.0;
            (0..count).map(move |_| {
                let place = sum;
                sum += step;
                place
            })
        };
        let mut values = Vec::new();
        for y in steps(self.dy, self.rows) {
            for x in steps(self.dx, self.columns) {
                let (x, y) = ((x - x0) * sign, (y - y0) * sign);
                let rho = (x * x + y * y).sqrt();
                let t = if is_secant { rho * t / (radius * m) } else { rho / (radius * 2.0) };
                let latitude = sign * (FRAC_PI_2 - 2.0 * t.atan());
                let longitude = if rho == 0.0 {
                    sign * self.longitude
                } else {
                    sign * x.atan2(-y) + self.longitude
                };
                let longitude = normal(longitude * TO_DEGREES).unwrap_or(f64::NAN);
                values.push(picked(GridPoint { latitude: latitude * TO_DEGREES, longitude }));
            }
        }
        values
    }
}

/// Returns the latitude on a spheroid with eccentricity `e` for `t`, `None` if it is not found.
fn spheroid_latitude(e: f64, t: f64) -> Option<f64> {
    let mut latitude = FRAC_PI_2 - 2.0 * t.atan();
    for _ in 0..=15 {
        let con = e * latitude.sin();
        let power = ((1.0 - con) / (1.0 + con)).powf(0.5 * e);
        let step = FRAC_PI_2 - 2.0 * (t * power).atan() - latitude;
        latitude += step;
        if step.abs() <= TINY {
            return Some(latitude);
        }
    }
    None
}

/// Returns an angle in radians from -pi to pi.
fn within_half_turn(angle: f64) -> f64 {
    let mut angle = angle;
    if angle > PI {
        angle -= 2.0 * PI;
    }
    if angle < -PI {
        angle += 2.0 * PI;
    }
    angle
}

/// Returns a longitude in degrees from 0 to 360. `None` if it is not a number or far away.
fn normal(longitude: f64) -> Option<f64> {
    if longitude.is_nan() || longitude.abs() > 1e5 {
        return None;
    }
    let mut longitude = longitude;
    while longitude < 0.0 {
        longitude += 360.0;
    }
    while longitude > 360.0 {
        longitude -= 360.0;
    }
    Some(longitude)
}
