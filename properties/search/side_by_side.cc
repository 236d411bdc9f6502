// A run whose steps are taken by several processes, each with a candidate of its own.
#include <fmt/format.h>
#include <signal.h>

#include <iterator>
#include <memory>
#include <ostream>
#include <sstream>
#include <stdexcept>

#include "properties/report/json.h"
#include "properties/search/parallel.h"
#include "properties/search/run_steps.h"
#include "properties/search/searches.h"

namespace attncheck::properties {
namespace {

/// What a process of a run is asked.
struct RunQuestion {
    std::size_t step = 0;
    Slice slice;
    std::string found;   ///< report with the counterexample to shrink, in one line
    std::string survey;  ///< of the step's operator
};

std::string to_text(const RunQuestion& question) {
    return fmt::format("{} {} {}\n{}\n{}", question.step, question.slice.cases, question.slice.seconds,
                       question.found, question.survey);
}

RunQuestion run_question_from(const std::string& text) {
    RunQuestion question;
    std::istringstream in(text);
    in >> question.step >> question.slice.cases >> question.slice.seconds;
    in.ignore();
    std::getline(in, question.found);
    question.survey.assign(std::istreambuf_iterator<char>(in), {});
    return question;
}

/// In front of the report of a slice: whether the search needs another one.
constexpr char kOver = 'o', kGoesOn = 'g';

/// Empty when it could not be made: then each process tries, and says why it cannot.
std::string own_survey(const Operator& op, Searches& searches) {
    try {
        return to_text(searches.survey_of(op));
    } catch (const std::exception&) {
        return {};
    }
}

/// The answer of a process. What it throws ends the process.
std::string answer_to(const std::string& text, const Run& run, const Clock& clock,
                      const VerifyOptions& options, Searches& searches, const Processes::Tell& tell) {
    const RunQuestion question = run_question_from(text);
    if (question.step >= run.end()) return own_survey(*run.surveyed(question.step - run.end()), searches);
    const RunTask& task = run.task(question.step);
    if (const Operator* op = task.surveyed(options)) searches.tell_survey(*op, question.survey);
    if (run.is_shrinking(question.step)) {
        PropertyReport alone = property_from_text(question.found, schemas());
        alone.counterexamples = {searches.shrink(task, alone.counterexamples.front())};
        return property_to_text(alone);
    }
    const CaseObserver on_case = [&, pace = Pace()](const PropertyReport& now) mutable {
        if (pace.passes(now, clock.now())) tell(property_to_text(now));
    };
    try {
        const auto [report, is_over] = searches.search(task, question.slice, on_case);
        return (is_over ? kOver : kGoesOn) + property_to_text(report);
    } catch (const Stopped&) {
        PropertyReport none = run.unfinished(question.step);
        none.status = PropertyReport::Status::inconclusive;
        return kOver + property_to_text(none);
    } catch (const std::exception& e) {  // the library is gone before its first case
        PropertyReport none = run.unfinished(question.step);
        none.note = e.what();
        return kOver + property_to_text(none);
    }
}

std::string alone_as_text(PropertyReport report, const Counterexample& found) {
    report.counterexamples = {found};
    return property_to_text(report);
}

}  // namespace

void verify_side_by_side(const CandidateInfo& info,
                         const std::function<std::unique_ptr<Candidate>()>& open, int processes,
                         const VerifyOptions& options, const Clock& clock, RunReport& report,
                         std::ostream& out, std::ostream* progress) {
    Run run(info, options, clock, processes, report, out, progress);
    Processes pool(processes, [&]() -> Processes::Serve {
        const std::shared_ptr<Candidate> candidate = open();
        const auto searches = std::make_shared<Searches>(
            *candidate, options, clock, of_all_operators(options.engine.features));
        return [&, candidate, searches](const std::string& question, const Processes::Tell& tell) {
            return answer_to(question, run, clock, options, *searches, tell);
        };
    });
    run.save();
    // Of the time nothing goes to loading the library; one that hangs when it is loaded again keeps the limit all the same.
    if (options.loading_seconds > 0) {
        constexpr double kSlower = 3, kLeast = 0.5;
        const double loaded_by = clock.now() + kSlower * options.loading_seconds + kLeast;
        pool.wait_for_first([&] { return clock.interrupted() || clock.now() > loaded_by; });
        run.begin();
    }
    constexpr double kGrace = 0.5;  ///< seconds in which a process that was told to stop answers
    int asks = 0;  // the process that has nothing to do
    Agenda agenda({run.end(), [&] { return run.next(asks); },
                   [&](std::size_t step) { return run.surveyed(step); }});
    const auto ask_all_idle = [&] {
        bool has_asked = false;
        for (const int process : pool.idle()) {
            asks = process;
            const auto question = agenda.next();
            if (!question) continue;
            RunQuestion whole{question->number, {}, {}, question->survey};
            if (!question->is_survey && run.is_shrinking(question->number))
                whole.found = alone_as_text(run.unfinished(question->number), run.to_shrink(question->number));
            else if (!question->is_survey)
                whole.slice = run.slice(question->number, process);
            pool.ask(question->number, to_text(whole), process);
            has_asked = true;
        }
        return has_asked;
    };
    std::optional<double> told;
    for (;;) {
        while (!run.is_ending() && ask_all_idle()) {}
        if (!pool.any_busy()) break;
        // A terminal signals all processes; `kill` only this one.
        if (run.is_ending() && !told) {
            pool.signal(SIGINT);
            told = clock.now();
        }
        if (told && (clock.now() - *told > kGrace || run.is_past_grace())) pool.give_up();
        Processes::Answer answer;
        if (!pool.wait(0.1, answer)) continue;
        if (answer.lost) run.forget(answer.process);
        if (agenda.is_survey(answer.number)) {
            agenda.learned(answer.number, answer.lost ? "" : answer.text);
            continue;
        }
        if (answer.lost) {
            run.finish_without_answer(answer.number, answer.why);
            continue;
        }
        if (run.is_shrinking(answer.number)) {
            run.finish_shrinking(answer.number,
                                 property_from_text(answer.text, schemas()).counterexamples.front());
            continue;
        }
        const bool is_over = answer.is_final && answer.text.front() == kOver;
        const PropertyReport one =
            property_from_text(answer.is_final ? answer.text.substr(1) : answer.text, schemas());
        if (!answer.is_final) {
            run.observe(answer.number, one);
            continue;
        }
        run.finish(answer.number, one, is_over);
        if (options.stop_at_first && is_settled(one)) run.stop();
    }
    run.close();
}

}  // namespace attncheck::properties
