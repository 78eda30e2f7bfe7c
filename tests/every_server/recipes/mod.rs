//! The recipes of docs/recipes, each in a file of its name, do what their page says.

mod ban;
mod calendar_quota;
mod change_plan;
mod gcra;
mod policies;
mod reservation;
