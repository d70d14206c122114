use super::*;

#[test]
fn timers_come_again_with_some_jitter_and_never_without_interval() {
    let t0 = Instant::now();
    let interval = Duration::from_secs(90);
    let mut timer = Timer::new(interval, t0);
    let at = timer.next().expect("due");
    assert!(at >= t0 + interval && at < t0 + interval + interval / 10, "{:?}", at - t0);
    assert!(!timer.fires(t0 + interval / 2));
    assert!(timer.fires(at));
    assert!(timer.next().expect("due again") >= at + interval);
    let mut never = Timer::new(Duration::ZERO, t0);
    assert_eq!((never.next(), never.fires(t0 + interval)), (None, false));
}
