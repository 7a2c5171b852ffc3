use super::coordinates::Coordinates;
use crate::error::Result;
use crate::times::Calendar;
use crate::view::region::{AxisSelection, NamedSelection, Region, TURN};

fn of_axis(text: &str, len: u64) -> Result<(u64, u64)> {
    let selected = AxisSelection::parse(text)?.of("dimension 0", len)?;
    Ok((selected.start, selected.len))
}

#[test]
fn a_range_of_a_dimension_without_elements_is_empty() {
    for text in [":", "0:", ":0", "0:0"] {
        assert_eq!(of_axis(text, 0).expect("a range"), (0, 0), "{text}");
    }
    assert_eq!(of_axis("2", 4).expect("an index"), (2, 1));
    for text in ["0", "-1", "0:1", "1:", "-1:"] {
        assert!(of_axis(text, 0).is_err(), "{text}");
    }
    assert!(of_axis("2:2", 4).is_err());
}

#[test]
fn names_and_indices_are_told_apart_and_never_mixed() {
    let names = Region::parse("lat=40:50, time=@0").expect("names");
    let Region::Names(names) = names else { panic!("{names:?}") };
    assert_eq!(names[0].1, NamedSelection::Coordinates("40:50".to_owned()));
    assert_eq!(names[1].1, NamedSelection::Indices(AxisSelection::One(0)));
    for wrong in ["lat=40,3", "lat=", "lat=1,lat=2", "=", "lat=@x", "a:b", "1:2:3"] {
        assert!(Region::parse(wrong).is_err(), "{wrong}");
    }
}

fn numbers(values: &[f64], is_longitude: bool) -> Coordinates {
    let values = values.iter().map(|value| Some(*value)).collect();
    Coordinates::Numbers { values, is_single: false, is_longitude }
}

/// Returns the values of a selection in their order, with their turns.
fn found(values: &[f64], wanted: &str, is_longitude: bool) -> Option<Vec<f64>> {
    let len = u64::try_from(values.len()).expect("few");
    let one = numbers(values, is_longitude).find("x", wanted).ok()?;
    let value = |at: u64| {
        let turns = if at < one.turns.count { one.turns.first } else { one.turns.rest };
        values[usize::try_from(one.index(at, len)).expect("few")] + TURN * f64::from(turns)
    };
    Some((0..one.len).map(value).collect())
}

#[test]
fn a_range_has_both_ends_and_goes_the_way_of_its_axis() {
    let up: Vec<f64> = (0..10).map(f64::from).collect();
    let down: Vec<f64> = up.iter().rev().copied().collect();
    assert_eq!(found(&up, "2:4", false), Some(vec![2.0, 3.0, 4.0]));
    assert_eq!(found(&up, "4:2", false), Some(vec![2.0, 3.0, 4.0]));
    assert_eq!(found(&down, "2:4", false), Some(vec![4.0, 3.0, 2.0]));
    assert_eq!(found(&up, "7.5:", false), Some(vec![8.0, 9.0]));
    assert_eq!(found(&down, ":1", false), Some(vec![1.0, 0.0]));
    for wanted in ["10.5:12", "2.2:2.8", "x", "1:2:3"] {
        assert_eq!(found(&up, wanted, false), None, "{wanted}");
    }
    assert_eq!(found(&[1.0, 5.0, 2.0], "1:2", false), None, "not next to each other");
}

#[test]
fn one_number_selects_the_nearest_element_and_none_far_outside() {
    let axis = [10.0, 20.0, 30.0];
    let one = |wanted: &str| found(&axis, wanted, false);
    assert_eq!(one("12"), Some(vec![10.0]));
    assert_eq!(one("15"), Some(vec![20.0]), "of two, the larger one");
    assert_eq!(one("3"), Some(vec![10.0]));
    assert_eq!(one("41"), None);
    assert_eq!(found(&[500.0], "10", false), None);
    assert_eq!(found(&[500.0], "500", false), Some(vec![500.0]));
}

#[test]
fn longitudes_go_on_after_a_turn() {
    let east: Vec<f64> = (0..8).map(|at| f64::from(at) * 45.0).collect();
    let both: Vec<f64> = (-4..4).map(|at| f64::from(at) * 45.0).collect();
    let down: Vec<f64> = east.iter().rev().copied().collect();
    let cut: Vec<f64> = [0.0, 90.0, 180.0, -90.0].to_vec();
    let of = |axis: &[f64], wanted: &str| found(axis, wanted, true).expect(wanted);
    assert_eq!(of(&east, "-90:45"), [-90.0, -45.0, 0.0, 45.0]);
    assert_eq!(of(&east, "270:45"), [270.0, 315.0, 360.0, 405.0]);
    assert_eq!(of(&down, "-90:45"), [45.0, 0.0, -45.0, -90.0]);
    assert_eq!(of(&both, "170:-130"), [180.0, 225.0]);
    assert_eq!(of(&both, "90:270"), [90.0, 135.0, 180.0, 225.0, 270.0]);
    assert_eq!(of(&east, "-180:180").len(), 8);
    assert_eq!(of(&east, "-180:179"), [-180.0, -135.0, -90.0, -45.0, 0.0, 45.0, 90.0, 135.0]);
    assert_eq!(of(&down, "-180:179"), [135.0, 90.0, 45.0, 0.0, -45.0, -90.0, -135.0, -180.0]);
    assert_eq!(of(&cut, "90:300"), [90.0, 180.0, 270.0]);
    assert_eq!(of(&east, "-40"), [-45.0]);
    assert_eq!(of(&east, "350"), [360.0]);
    assert_eq!(of(&both, "0:360").len(), 8);
    assert_eq!(found(&east, "-90:45", false), Some(vec![0.0, 45.0]));
    // Sums with turns are rounded.
    let tenths: Vec<f64> = (0..3600).map(|at| f64::from(at) / 10.0).collect();
    assert_eq!(of(&tenths, "-0.1:0.1").len(), 3);
    let europe = [-10.0, 0.0, 10.0, 20.0, 30.0, 40.0];
    for far in ["100", "190", "-170", "55"] {
        assert_eq!(found(&europe, far, true), None, "{far}");
    }
    assert_eq!(of(&europe, "405"), [400.0]);
    assert_eq!(found(&[0.0, 0.1, 0.2, 0.1 + 0.2], "0.1:0.3", false).map(|all| all.len()), Some(3));
}

#[test]
fn times_are_selected_by_periods_of_their_calendar() {
    let day = |calendar: Calendar, year, month, day| {
        Some(calendar.day(year, month, day).expect("a day") * crate::times::DAY)
    };
    let calendar = Calendar::NoLeap;
    let months = (1..=12).map(|month| day(calendar, 2020, month, 15)).collect();
    let times = Coordinates::Times(months, calendar);
    let of =
        |wanted: &str| times.find("time", wanted).map(|one| (one.start, one.len, one.is_kept)).ok();
    assert_eq!(of("2020-02:2020-04"), Some((1, 3, true)));
    assert_eq!(of("2020-02/2020-04-15T00:00"), Some((1, 3, true)));
    assert_eq!(of("2020-03-15T00:00:2020-04-14T23:59:59"), Some((2, 1, true)));
    assert_eq!(of("2020-06:"), Some((5, 7, true)));
    assert_eq!(of("2020-03-15T00:00:2021"), Some((2, 10, true)));
    assert_eq!(of("2020-03-15T00:00:2020-06"), Some((2, 4, true)));
    assert_eq!(of("2020"), Some((0, 1, false)));
    assert_eq!(of("2020-07"), Some((6, 1, false)));
    assert_eq!(of("2020-07-01"), Some((6, 1, false)), "the nearest");
    assert_eq!(of("2020-02-29"), None, "the calendar has no such day");
    for wanted in ["2022", "12", "tomorrow", "2020-13", "2021:2022", "1:2:3"] {
        assert_eq!(of(wanted), None, "{wanted}");
    }
}
