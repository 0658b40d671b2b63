//! Pictures, as SVG.

use anyhow::{Context, Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::finding::{Chart, Kind, Source};

const SIZE: (u32, u32) = (760, 380);

/// The colors of a page by day or by night.
#[derive(Clone, Copy)]
pub(super) struct Palette {
    ink: RGBColor,
    grid: RGBColor,
    series: [RGBColor; 8],
}

/// After Okabe and Ito 2008: colors that people with any color vision can distinguish.
pub(super) const LIGHT: Palette = Palette {
    ink: RGBColor(0x22, 0x22, 0x22),
    grid: RGBColor(0xDD, 0xDD, 0xDD),
    series: [
        RGBColor(0x00, 0x72, 0xB2),
        RGBColor(0xD5, 0x5E, 0x00),
        RGBColor(0x00, 0x9E, 0x73),
        RGBColor(0xCC, 0x79, 0xA7),
        RGBColor(0x8A, 0x6D, 0x00),
        RGBColor(0x56, 0xB4, 0xE9),
        RGBColor(0x44, 0x44, 0x44),
        RGBColor(0x99, 0x33, 0x33),
    ],
};

pub(super) const DARK: Palette = Palette {
    ink: RGBColor(0xDD, 0xDD, 0xDD),
    grid: RGBColor(0x3A, 0x3A, 0x3A),
    series: [
        RGBColor(0x56, 0xB4, 0xE9),
        RGBColor(0xE6, 0x9F, 0x00),
        RGBColor(0x2F, 0xC8, 0x9B),
        RGBColor(0xE3, 0x9B, 0xC4),
        RGBColor(0xF0, 0xE4, 0x42),
        RGBColor(0x3D, 0x9B, 0xE0),
        RGBColor(0xBB, 0xBB, 0xBB),
        RGBColor(0xE0, 0x77, 0x77),
    ],
};

impl Palette {
    fn series(&self, index: usize) -> RGBColor {
        self.series[index % self.series.len()]
    }

    /// The color of a series, for a style sheet.
    pub(super) fn css(&self, index: usize) -> String {
        let RGBColor(red, green, blue) = self.series(index);
        format!("#{red:02X}{green:02X}{blue:02X}")
    }

    fn text(&self, size: u32) -> TextStyle<'static> {
        ("sans-serif", size).into_font().color(&self.ink)
    }
}

/// Draws a chart.
///
/// # Errors
/// It has no points, or the plotting library fails.
pub(super) fn draw(chart: &Chart, palette: Palette) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        match chart.kind {
            Kind::Lines => lines(chart, palette, &area)?,
            Kind::Bars => bars(chart, palette, &area)?,
        }
        area.present().with_context(|| chart.title.clone())?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// The least and the most of the points, of what `of` takes of them.
fn extent(chart: &Chart, of: impl Fn(&(f64, f64)) -> f64) -> Result<(f64, f64)> {
    let values = || chart.series.iter().flat_map(|series| &series.points).map(&of);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    if least.is_finite() && most.is_finite() {
        Ok((least, most))
    } else {
        Err(anyhow!("{}: there is nothing to draw", chart.title))
    }
}

/// Logarithms where an axis has them. What is not above 0 has none, and is left out.
fn placed(value: f64, logarithmic: bool) -> Option<f64> {
    if logarithmic { (value > 0.0).then(|| value.log10()) } else { Some(value) }
}

fn label(value: f64, logarithmic: bool) -> String {
    if logarithmic && value.fract() != 0.0 {
        // Powers of ten are enough.
        return String::new();
    }
    let value = if logarithmic { 10f64.powf(value) } else { value };
    let magnitude = value.abs();
    if magnitude >= 1e9 {
        format!("{}G", value / 1e9)
    } else if magnitude >= 1e6 {
        format!("{}M", value / 1e6)
    } else if magnitude >= 1e3 {
        format!("{}k", value / 1e3)
    } else {
        // Six digits are more than a picture has.
        format!("{}", (value * 1e6).round() / 1e6)
    }
}

fn lines(chart: &Chart, palette: Palette, area: &Area<'_>) -> Result<()> {
    let (x_log, y_log) = (chart.x.logarithmic, chart.y.logarithmic);
    let (x_least, x_most) = extent(chart, |point| placed(point.0, x_log).unwrap_or(0.0))?;
    let (y_least, y_most) = extent(chart, |point| placed(point.1, y_log).unwrap_or(0.0))?;
    let y_least = if y_log { y_least.floor() } else { y_least.min(0.0) };
    let margin = 0.05 * (y_most - y_least).max(1e-9);
    let mut plot = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(x_least..x_most.max(x_least + 1e-9), y_least..y_most + margin)?;
    plot.configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(palette.grid)
        .axis_style(palette.ink)
        .label_style(palette.text(13))
        .axis_desc_style(palette.text(14))
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .x_labels(8)
        .x_label_formatter(&|value| label(*value, x_log))
        .y_label_formatter(&|value| label(*value, y_log))
        .draw()?;
    for (index, series) in chart.series.iter().enumerate() {
        let color = palette.series(index);
        let style = color.stroke_width(2);
        let points: Vec<(f64, f64)> = series
            .points
            .iter()
            .filter_map(|point| Some((placed(point.0, x_log)?, placed(point.1, y_log)?)))
            .collect();
        if points.len() < 40 {
            plot.draw_series(points.iter().map(|point| Circle::new(*point, 3, color.filled())))?;
        }
        if series.source == Source::Paper {
            plot.draw_series(DashedLineSeries::new(points, 6, 4, style))?;
        } else {
            plot.draw_series(LineSeries::new(points, style))?;
        }
    }
    Ok(())
}

/// Bars in groups: the group of each point is its whole x.
fn bars(chart: &Chart, palette: Palette, area: &Area<'_>) -> Result<()> {
    let y_log = chart.y.logarithmic;
    let (y_least, y_most) = extent(chart, |point| placed(point.1, y_log).unwrap_or(0.0))?;
    let base = if y_log { (y_least - 0.3).floor() } else { y_least.min(0.0) };
    let groups = chart.x.names.len() as f64;
    let mut plot = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..groups - 0.5, base..y_most + 0.05 * (y_most - base).max(1e-9))?;
    plot.configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(palette.grid)
        .axis_style(palette.ink)
        .label_style(palette.text(13))
        .axis_desc_style(palette.text(14))
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .x_labels(0)
        .y_label_formatter(&|value| label(*value, y_log))
        .draw()?;
    let centered = palette.text(13).pos(Pos::new(HPos::Center, VPos::Top));
    for (place, name) in chart.x.names.iter().enumerate() {
        let (x, y) = plot.backend_coord(&(place as f64, base));
        area.draw(&Text::new(name.clone(), (x, y + 6), centered.clone()))?;
    }
    let width = 0.8 / chart.series.len().max(1) as f64;
    for (index, series) in chart.series.iter().enumerate() {
        let color = palette.series(index);
        let left = |x: f64| x - 0.4 + width * index as f64;
        let bars = series.points.iter().filter_map(|&(x, y)| Some((left(x), placed(y, y_log)?)));
        let style = if series.source == Source::Paper { color.mix(0.45).filled() } else { color.filled() };
        plot.draw_series(bars.map(|(x, y)| Rectangle::new([(x, base), (x + 0.92 * width, y)], style)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::paper::finding::{Axis, Series};

    fn chart(kind: Kind, points: Vec<(f64, f64)>) -> Chart {
        let series = |name: &str, source| Series { name: name.to_owned(), source, points: points.clone() };
        Chart {
            title: "a chart".to_owned(),
            x: Axis::of_names("x", ["one".to_owned(), "two".to_owned()]),
            y: Axis::logarithmic("y"),
            kind,
            series: vec![series("ours", Source::Measured), series("theirs", Source::Paper)],
        }
    }

    #[test]
    fn a_chart_shows_every_series() {
        for kind in [Kind::Lines, Kind::Bars] {
            let svg = draw(&chart(kind, vec![(0.0, 10.0), (1.0, 0.2)]), LIGHT).unwrap();
            // Axes, ticks, and a shape for each series.
            assert!(svg.contains(&LIGHT.css(0)) && svg.contains(&LIGHT.css(1)), "{svg}");
            assert!(svg.ends_with("</svg>\n"), "{svg}");
        }
    }

    #[test]
    fn nothing_cannot_be_drawn() {
        let error = draw(&chart(Kind::Lines, Vec::new()), DARK).unwrap_err();
        assert_eq!(error.to_string(), "a chart: there is nothing to draw");
    }

    #[test]
    fn large_numbers_are_short() {
        let labels = [1234.0, 2e6, 3e9, 0.25].map(|value| label(value, false));
        assert_eq!(labels, ["1.234k", "2M", "3G", "0.25"]);
        assert_eq!(label(4.0, true), "10k");
    }
}
